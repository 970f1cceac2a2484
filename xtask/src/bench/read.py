"""The other side of `cargo xtask bench read`: each command prints one line of JSON.

`read.py run OUT COMMAND...` runs a command with its standard output in OUT and says what it took.
`read.py ask QUESTION FABRIC ANSWER` asks DuckDB with a thread for each CPU, writes the rows into ANSWER,
and says what that took, without the start of Python. `read.py copy FABRIC OUT` has DuckDB write the same rows
again, with as many threads as `attribute` has. `read.py same CSV ANSWER` fails unless `report --csv`
says what DuckDB answered.
"""

import csv
import json
import math
import os
import resource
import subprocess
import sys
import time

# The key of a line of `report --by cgroup`.
LINE = """event || CASE WHEN filter = '' THEN '' ELSE '[' || filter || ']' END AS event, unit, owner,
    CASE WHEN owner <> 'task' THEN owner
         ELSE coalesce(cgroup, '(cgroup id ' || cgroup_id || ')', '(no cgroup)') END AS key"""
# Columns of which `check` only wants to know that they can be decoded, and where they are null.
DECODED = [
    "host", "boot_id", "cluster", "socket", "subsystem", "pmu", "event", "filter", "unit", "pid", "number",
    "comm", "cgroup_id", "cgroup", "container", "pod",
]
QUESTIONS = {
    "sums": f"{LINE}, sum(value)",
    # What `check` knows of a window, of all columns of `fabric`.
    "check": f"""counter, cpu, mono_ns, sum(value), sum(abs(value)), count(value), min(total), max(total),
        min(running), max(running), min(window_ns), max(window_ns), min(confidence), max(confidence),
        min(cgroup_confidence), max(cgroup_confidence), min(epoch_us(ts)), max(epoch_us(ts)),
        count(*) FILTER (owner NOT IN ('task', 'other_tasks', 'irq', 'softirq', 'idle', 'device', 'unattributed')),
        count(*) FILTER (method NOT IN ('exact', 'residency', 'regression', 'none')),
        {", ".join(f"count({column})" for column in DECODED)}""",
    # The columns of a line of `report`, without bars, methods and the 90 % interval.
    "columns": f"""{LINE}, sum(value), count(value), count(*), min(confidence), avg(confidence), avg(running),
        max(value * 1e9 / window_ns), min(mono_ns - window_ns) FILTER (value <> 0),
        max(mono_ns) FILTER (value <> 0)""",
}


def spent(wall_s, usage, before=None):
    cpu_s = usage.ru_utime + usage.ru_stime
    if before is not None:
        cpu_s -= before.ru_utime + before.ru_stime
    print(json.dumps({"wall_s": wall_s, "cpu_s": cpu_s, "peak_kib": usage.ru_maxrss}))


def run(out, *command):
    begin = time.monotonic()
    with open(out, "wb") as file:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file)
        _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"{command[0]} ended with {os.waitstatus_to_exitcode(status)}")
    spent(time.monotonic() - begin, usage)


def measured(sql, threads):
    import duckdb

    connection = duckdb.connect(config={"threads": threads, "memory_limit": "4GB"})
    begin, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
    rows = connection.execute(sql).fetchall()
    spent(time.monotonic() - begin, resource.getrusage(resource.RUSAGE_SELF), before)
    return rows


def ask(question, fabric, answer):
    sql = f"SELECT {QUESTIONS[question]} FROM read_parquet(?) GROUP BY ALL"
    rows = measured(sql.replace("?", "'" + fabric.replace("'", "''") + "'"), os.cpu_count())
    with open(answer, "w") as file:
        json.dump(rows, file)


def copy(fabric, out):
    fabric, out = (path.replace("'", "''") for path in (fabric, out))
    # The thread that makes rows and the one that writes them.
    measured(f"COPY (FROM '{fabric}') TO '{out}' (FORMAT parquet, COMPRESSION zstd)", 2)


def same(report, answer):
    with open(report) as file:
        lines = {
            (line["event"], line["unit"], line["owner"], line["key"]): float(line["value"] or 0)
            for line in csv.DictReader(file)
        }
    with open(answer) as file:
        rows = {tuple(row[:4]): row[4] or 0 for row in json.load(file)}
    if lines.keys() != rows.keys():
        sys.exit(f"the report has {len(lines)} lines, DuckDB {len(rows)} rows: {next(iter(lines.keys() ^ rows.keys()))}")
    for key, value in lines.items():
        if not math.isclose(value, rows[key], rel_tol=1e-9):
            sys.exit(f"{key}: the report has {value}, DuckDB {rows[key]}")
    print(json.dumps({"lines": len(lines)}))


{"run": run, "ask": ask, "copy": copy, "same": same}[sys.argv[1]](*sys.argv[2:])
