"""Compares a recording with the parts from which it was made; prints missing and additional rows as JSON.

Arguments: directory of the parts, the recording, begin and end of what it is to have (CLOCK_MONOTONIC, ns; 0: all).
"""

import json
import sys

import duckdb

parts, made, begin, end = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
end = end or 1 << 62

# Which rows a recording of that time has.
OF_THE_TIME = {
    "fabric": f"mono_ns - window_ns >= {begin} AND mono_ns <= {end}",
    "runtime": f"mono_ns - tick_ns >= {begin} AND mono_ns <= {end}",
    "irqs": f"mono_ns - tick_ns >= {begin} AND mono_ns <= {end}",
    "slices": f"end_ns > {begin} AND begin_ns < {end}",
    "readings": "true",
}
# The wall clock of each part is read at its begin.
LEFT_OUT = {"fabric": "EXCLUDE (ts)", "readings": "EXCLUDE (tick)"}


def differ(table):
    columns = f"* {LEFT_OUT.get(table, '')}"
    old = f"SELECT DISTINCT {columns} FROM '{parts}/*/{table}.parquet' WHERE {OF_THE_TIME[table]}"
    new = f"SELECT {columns} FROM '{made}/{table}.parquet'"
    count = lambda query: duckdb.execute(f"SELECT count(*) FROM ({query})").fetchone()[0]
    lacks = 0 if table == "readings" and begin else count(f"({old}) EXCEPT ({new})")
    return [lacks, count(f"({new}) EXCEPT ({old})"), count(new) - count(f"SELECT DISTINCT * FROM ({new})")]


span = duckdb.execute(
    f"SELECT min(mono_ns - window_ns), max(mono_ns) FROM '{made}/fabric.parquet'"
).fetchone()
print(json.dumps({"span": span, "differ": {table: differ(table) for table in OF_THE_TIME}}))
