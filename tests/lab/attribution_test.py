"""Compares the figures of attribution.py for a small recording with figures computed by hand."""

import json
import pathlib
import sys
import tempfile

import attribution
import duckdb
import numpy as np

TICK_NS = 1_000_000
TICKS = 5

# Process, cgroup, amount in each tick.
TENANTS = [(1, 10, 60), (2, 20, 40)]
DEVICE = (3, 30, 100)

WHICH = {"device": 0, "event": 7, "sources": None, "targets": None, "factor": 1}
COUNTER = {"pmu": "pmu", "event": "reads", "truth": WHICH}


def recording(directory, tenants):
    """A counter that is read each tick on CPU 0, and one process on each CPU all the time."""
    run = directory / "run"
    run.mkdir()
    moves = np.zeros((TICKS - 1) * len(tenants), attribution.TRUTH)
    for number, (pid, cgroup, amount) in enumerate(tenants):
        its = moves[number :: len(tenants)]
        its["time"] = (np.arange(TICKS - 1) + 0.5) * TICK_NS
        its["pid"], its["cgroup"], its["amount"] = pid, cgroup, amount
        its["event"] = WHICH["event"]
    moves.tofile(directory / "truth.bin")
    cgroups = {"/lab/a": 10, "/lab/b": 20, "/lab/device": 30}
    (directory / "cgroups.json").write_text(json.dumps(cgroups))
    tables = {
        "counters": """SELECT 0 AS counter, 'pmu' AS pmu, 'reads' AS event, 1::DOUBLE AS scale,
                              '0-1,4' AS sees, 0 AS socket""",
        "readings": f"""SELECT 0 AS counter, range AS tick, range * {TICK_NS} AS mono_ns,
                               0 AS width_ns, 'timer' AS trigger, range AS value
                        FROM range({TICKS})""",
        "cpus": "SELECT range AS cpu, CASE WHEN range < 4 THEN 0 ELSE 2 END AS socket FROM range(5)",
        "runtime": f"""SELECT (1 + tick.range) * {TICK_NS} AS mono_ns, pid.range - 1 AS cpu,
                              'task' AS owner, pid.range AS pid, {TICK_NS} AS run_ns,
                              CASE WHEN pid.range = 5 THEN 'uncore-trace' ELSE 'x' END AS process
                       FROM range({TICKS}) AS tick, range(1, 6) AS pid""",
        "run": "SELECT 1",
    }
    for table, query in tables.items():
        save(query, run / f"{table}.parquet")
    return {"dir": directory, "counters": [COUNTER]}


def save(query, path):
    duckdb.execute(
        f"""COPY ({query}) TO '{path}'
            (FORMAT parquet, KV_METADATA {{'uncore_trace.tick_ns': '{TICK_NS}'}})"""
    )


def fabric(directory, rows):
    """Two windows of two ticks with the same rows: owner, cgroup, process, value, confidence."""
    total = sum(row[3] for row in rows)
    values = ", ".join(
        f"('{owner}', {cgroup}, {pid}, {value}, {confidence}, 'regression')"
        for owner, cgroup, pid, value, confidence in rows
    )
    query = f"""SELECT (2 + 2 * range) * {TICK_NS} AS mono_ns, {2 * TICK_NS} AS window_ns,
                       'pmu' AS pmu, 'reads' AS event, {total}::DOUBLE AS total, rows.* REPLACE (
                       rows.value::DOUBLE AS value, rows.confidence::FLOAT AS confidence)
                FROM range(2), (VALUES {values})
                     AS rows(owner, cgroup_id, pid, value, confidence, method)"""
    save(query, directory / "fabric.parquet")
    return directory / "fabric.parquet"


def compared(directory, tenants, rows, report=()):
    task = recording(directory, tenants)
    lines = directory / "report.json"
    lines.write_text("\n".join(json.dumps(line) for line in report))
    label = "auto 2ms"
    task |= {"made": {label: fabric(directory, rows)}, "reports": {label: lines}}
    found = {}
    recorder, correlated = attribution.dataset(task, found)
    assert recorder == 0, recorder
    # All run all the time.
    assert correlated == [], correlated
    return found[label].figures(), found["floor 2ms"].figures()


def near(value, wanted):
    assert abs(value - wanted) < 1e-9, (value, wanted)


def shares(directory):
    rows = [
        ("task", 10, 1, 90, 0.4),
        ("task", 20, 2, 96, 0.6),
        ("irq", "NULL", "NULL", 14, 0.1),
    ]
    report = [
        {"event": "reads", "key": "/lab/a", "value_low": 200, "value_high": 300},
        {"event": "reads", "key": "/lab/b", "value_low": 0, "value_high": 100},
        {"event": "reads", "key": "irq", "value_low": 0, "value_high": 100},
    ]
    made, floor = compared(directory, TENANTS, rows, report)
    # 120 and 80 are right.
    near(made["median"], (0.25 + 0.2) / 2)
    near(made["misplaced"], (30 + 16 + 14) / 2 / 200)
    near(made["bill_worst"], 0.25)
    near(made["bill_worst_relied_on"], 0.2)
    assert made["bills_relied_on"] == 1
    assert (made["intervals"], made["intervals_held"]) == (2, 1)
    near(floor["median"], 0.0)
    near(floor["misplaced"], 0.0)


def device(directory):
    rows = [
        ("task", 10, 1, 120, 0.4),
        ("task", 20, 2, 120, 0.6),
        ("unattributed", "NULL", "NULL", 160, 0.0),
    ]
    made, _ = compared(directory, [*TENANTS, DEVICE], rows)
    # The device moved 200, of which one tenant got 40.
    near(made["misplaced"], (40 + 40) / 2 / 400)
    near(made["bill_worst"], 0.5)
    assert made["errors"] == 4


def divided_by_method(directory):
    """A method divides the first window and a quarter of the second, in which one tenant moves nothing."""
    recording(directory, TENANTS)
    moves = np.fromfile(directory / "truth.bin", attribution.TRUTH)
    moves["amount"][(moves["cgroup"] == 20) & (moves["time"] > 2 * TICK_NS)] = 0
    moves.tofile(directory / "truth.bin")
    save(
        f"""SELECT mono_ns * {TICK_NS} AS mono_ns, {2 * TICK_NS} AS window_ns, 'pmu' AS pmu,
                   'reads' AS event, 1.0 AS total, value, method
            FROM (VALUES (2, 200, 'misses'), (4, 30, 'misses'), (4, 90, 'residency'))
                 AS rows(mono_ns, value, method)""",
        directory / "fabric.parquet",
    )
    db = duckdb.connect()
    for table in ("counters", "readings"):
        db.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{directory}/run/{table}.parquet')")
    db.execute(f"CREATE VIEW fabric AS SELECT * FROM read_parquet('{directory}/fabric.parquet')")
    found = attribution.divided_truth(db, directory, "pmu", "reads", WHICH, "misses")
    assert sorted(found) == [10, 20], found
    near(found[10], 120 + 120 / 4)
    near(found[20], 80)


def correlated(directory):
    """On each of three CPUs two processes take turns: on CPUs 0 and 1 at the same times."""
    path = directory / "runtime.parquet"
    save(
        f"""SELECT tick * {TICK_NS} AS mono_ns, cpu, 'task' AS owner, 'x' AS process,
                   10 * cpu + (CASE WHEN cpu < 2 THEN tick ELSE tick // 2 END) % 2 AS pid,
                   {TICK_NS} AS run_ns
            FROM range(40) AS t(tick), range(3) AS c(cpu)""",
        path,
    )
    db = duckdb.connect()
    db.execute(f"CREATE VIEW runtime AS SELECT * FROM read_parquet('{path}')")
    db.execute("CREATE VIEW cpus AS SELECT range AS cpu, 0 AS socket FROM range(3)")
    db.execute("CREATE VIEW counters AS SELECT 0 AS socket")
    found = attribution.correlations(db, TICK_NS)
    for value, wanted in zip(found, [1, 0, 0], strict=True):
        near(value, wanted)


def main():
    for case in (shares, device, divided_by_method, correlated):
        with tempfile.TemporaryDirectory() as directory:
            case(pathlib.Path(directory))


if __name__ == "__main__":
    sys.exit(main())
