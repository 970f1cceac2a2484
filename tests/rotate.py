"""Checks the parts of a rotated recording together; prints JSON."""

import json
import sys

import duckdb

parts = f"{sys.argv[1]}/*"


def rows(query):
    return duckdb.execute(query).fetchall()


def table(name):
    return f"read_parquet('{parts}/{name}.parquet', filename = true)"


# Windows that begin where none ended, and windows that two parts have.
gaps = rows(
    f"""SELECT counter, mono_ns FROM (
            SELECT counter, mono_ns, window_ns,
                   lag(mono_ns) OVER (PARTITION BY counter ORDER BY mono_ns) AS before
            FROM (SELECT DISTINCT counter, mono_ns, window_ns FROM {table("fabric")}))
        WHERE mono_ns - window_ns <> before"""
)
doubled = rows(
    f"""SELECT counter, mono_ns FROM {table("fabric")}
        GROUP BY ALL HAVING count(DISTINCT filename) > 1"""
)
# The last count of a part, where the next one does not begin with it.
torn = rows(
    f"""WITH cuts AS (
            SELECT filename, counter, min_by(value, mono_ns) AS first, max_by(value, mono_ns) AS last
            FROM {table("readings")} WHERE trigger = 'timer' GROUP BY ALL),
        pairs AS (
            SELECT *, lead(first) OVER (PARTITION BY counter ORDER BY filename) AS following FROM cuts)
        SELECT filename, counter, last, following FROM pairs WHERE last <> following"""
)
# Time of each CPU that is in two parts or in none, ns.
missing = rows(
    f"""WITH ticks AS (
            SELECT cpu, mono_ns, any_value(tick_ns) AS tick_ns, count(DISTINCT filename) AS parts
            FROM {table("runtime")} GROUP BY cpu, mono_ns)
        SELECT cpu, max(mono_ns) - min(mono_ns - tick_ns) - sum(tick_ns * parts) AS missing
        FROM ticks GROUP BY cpu HAVING missing <> 0"""
)
print(
    json.dumps(
        {
            "parts": len(rows(f"SELECT DISTINCT filename FROM {table('fabric')}")),
            "rows": rows(f"SELECT count(*) FROM {table('fabric')}")[0][0],
            "gaps": gaps,
            "doubled": doubled,
            "torn": torn,
            "missing": missing,
        }
    )
)
