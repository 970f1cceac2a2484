"""Lateness of readings: python3 sampling.py READINGS.parquet TICK_NS prints one JSON object.

A reading is due at a whole multiple of the tick, on each CPU that reads. Ticks of which a CPU has no reading
are missing.
"""

import json
import sys

import duckdb

PATH, TICK = sys.argv[1], int(sys.argv[2])

QUERY = """
WITH first AS (
    SELECT cpu, mono_ns // $tick AS tick, min(mono_ns) % $tick AS late
    FROM read_parquet($path) WHERE trigger = 'timer' GROUP BY ALL
), each AS (
    SELECT cpu, max(tick) - min(tick) + 1 AS ticks, count(*) AS seen FROM first GROUP BY cpu
)
SELECT (SELECT sum(ticks) FROM each), (SELECT sum(ticks - seen) FROM each),
       quantile_disc(late, 0.5), quantile_disc(late, 0.99), max(late) FROM first
"""

row = duckdb.execute(QUERY, {"path": PATH, "tick": TICK}).fetchone()
print(json.dumps(dict(zip(["ticks", "missing", "p50", "p99", "max"], map(int, row)))))
