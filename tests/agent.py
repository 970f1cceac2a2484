"""Compares a ring and a roll-up of the same time; prints JSON."""

import json
import sys

import duckdb

ring, rollup, window_ns, fabric_ns = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
FABRIC = f"read_parquet('{ring}/0*/fabric.parquet')"
ROLLUP = f"read_parquet('{rollup}/**/*.parquet', hive_partitioning = true)"


def rows(query):
    return duckdb.execute(query).fetchall()


# Windows that both have as a whole, where they differ. Where a reading at the end of a window is missing, that
# window and the next are one, which may be in two of the roll-up; where it is the last of a part, it has no value.
# The first and the last window of a part may be shorter.
both = f"""
    WITH fine AS (
        SELECT pmu, event, (mono_ns + {window_ns - 1}) // {window_ns} * {window_ns} AS mono_ns,
               sum(value) AS value,
               count(DISTINCT (counter, mono_ns)) FILTER (WHERE total IS NOT NULL)
                   / count(DISTINCT counter) AS windows,
               min(window_ns) AS shortest, max(window_ns) AS longest
        FROM {FABRIC} GROUP BY ALL),
    coarse AS (
        SELECT pmu, event, mono_ns, sum(value) AS value, min(known_ns) AS known
        FROM {ROLLUP} GROUP BY ALL)
    SELECT fine.*, coarse.value AS found, known FROM fine JOIN coarse USING (pmu, event, mono_ns)
    WHERE windows = {window_ns // fabric_ns} AND shortest = {fabric_ns} AND longest = {fabric_ns}"""
differ = rows(f"SELECT * FROM ({both}) WHERE abs(value - found) > 1e-6 * abs(value) OR known <> {window_ns}")
# Windows that the ring has as a whole, and the roll-up has not.
missing = rows(
    f"""SELECT count(*) FROM (
            SELECT pmu, event, (mono_ns + {window_ns - 1}) // {window_ns} * {window_ns} AS mono_ns
            FROM {FABRIC} AS fabric GROUP BY ALL HAVING count(DISTINCT fabric.mono_ns) = {window_ns // fabric_ns})
        ANTI JOIN {ROLLUP} USING (pmu, event, mono_ns)"""
)[0][0]
compared = rows(f"SELECT count(*) FROM ({both})")[0][0]
outside = rows(f"SELECT event, value, low, high FROM {ROLLUP} WHERE NOT (low <= value AND value <= high)")
doubled = rows(
    f"""SELECT mono_ns, event FROM {ROLLUP}
        GROUP BY mono_ns, event, pmu, owner, comm, number, cgroup, container, pod, job, method
        HAVING count(*) > 1 LIMIT 5"""
)
summary = rows(
    f"""SELECT count(DISTINCT mono_ns), count(DISTINCT cluster), min(cluster), count(DISTINCT hour)
        FROM {ROLLUP}"""
)[0]
print(
    json.dumps(
        {
            "differ": [str(row) for row in differ[:5]],
            "compared": compared,
            "missing": missing,
            "outside": [str(row) for row in outside[:5]],
            "doubled": [str(row) for row in doubled],
            "windows": summary[0],
            "cluster": summary[2],
        }
    )
)
