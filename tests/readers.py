"""Reads recordings with other programs, for tests on the kernel; writes JSON to stdout.

Modes: `sums duckdb|pandas FILE`, `conservation FILE`, `stream FILE`, `ask SQL` (of the file in its `FROM`). Sums have the keys of
`uncore-trace report --by cgroup --json`.
"""

import json
import sys

KEY = """CASE WHEN owner <> 'task' THEN owner
              WHEN cgroup IS NOT NULL THEN cgroup
              WHEN cgroup_id IS NOT NULL THEN '(cgroup id ' || cgroup_id || ')'
              ELSE '(no cgroup)' END"""


def duckdb_rows(query, file):
    import duckdb

    return duckdb.execute(query, [file]).fetchall()


def sums_duckdb(file):
    query = f"""SELECT event, owner, {KEY} AS key, sum(value), count(value)
                FROM read_parquet(?) GROUP BY ALL"""
    return [list(row) for row in duckdb_rows(query, file)]


def key(row):
    import pandas

    if row.owner != "task":
        return row.owner
    if not pandas.isna(row.cgroup):
        return row.cgroup
    return "(no cgroup)" if pandas.isna(row.cgroup_id) else f"(cgroup id {int(row.cgroup_id)})"


def sums_of(frame):
    frame["key"] = [key(row) for row in frame[["owner", "cgroup", "cgroup_id"]].itertuples()]
    groups = frame.groupby(["event", "owner", "key"], observed=True).value.agg(["sum", "count"])
    return [[*index, float(row["sum"]), int(row["count"])] for index, row in groups.iterrows()]


def sums_pandas(file):
    import pandas

    return sums_of(pandas.read_parquet(file))


def conservation(file):
    query = """SELECT count(*), max(abs(value - total) / greatest(abs(total), 1e-300)), max(spread)
               FROM (SELECT sum(value) AS value, max(total) AS total,
                            max(total) - min(total) AS spread
                     FROM read_parquet(?) WHERE total IS NOT NULL
                     GROUP BY mono_ns, counter)
               WHERE total <> 0"""
    return list(duckdb_rows(query, file)[0])


def stream(file):
    import pyarrow.ipc

    with pyarrow.ipc.open_stream(file) as reader:
        table = reader.read_all()
    frame = table.to_pandas()
    clock = frame[frame.event == "cpu-clock"]
    values = clock.groupby("cpu").value.sum()
    windows = clock.drop_duplicates(["cpu", "mono_ns"]).groupby("cpu").window_ns.sum()
    clocks = [[int(cpu), float(values[cpu]), int(ns)] for cpu, ns in windows.items()]
    sums = sums_of(frame)
    return {"columns": table.column_names, "rows": table.num_rows, "sums": sums, "clocks": clocks}


match sys.argv[1:]:
    case ["sums", "duckdb", file]:
        answer = sums_duckdb(file)
    case ["sums", "pandas", file]:
        answer = sums_pandas(file)
    case ["conservation", file]:
        answer = conservation(file)
    case ["stream", file]:
        answer = stream(file)
    case ["ask", query]:
        import duckdb

        # A query that takes seconds would print its progress on stdout.
        duckdb.execute("SET enable_progress_bar = false")
        answer = duckdb.execute(query).fetchall()
    case other:
        sys.exit(f"unknown: {other}")
json.dump(answer, sys.stdout)
