"""Holds what `attribute` made of recordings of the lab against what their tenants moved.

`attribution.py TASK.json` reads `{"datasets": [{"dir", "counters", "made": {LABEL: FABRIC}}]}`:
DIR has run/ and truth.bin, each counter its pmu, event and truth, each FABRIC is a table made of
it. Prints, for each LABEL, one object over all datasets.

What is compared, for each counter that counted something:

- A cgroup's bytes in a window are what its processes moved between the two readings that bound
  the window: readings are late by some microseconds, and this is about shares, not about timers.
- The error of a cgroup in a window is |value - truth| / truth where truth is above 1 % of the
  window's: of less, a share of the whole that nobody would miss is an error of any size.
- A row says what its confidence says; it is right within 10 % of what its process moved. Rows of
  interrupts, idle time and kernel threads are right if nothing is in them, for all that moves
  belongs to tenants. Rows below 1 % of the window, of both value and truth, are left out as above,
  and so is `unattributed`, which claims nothing.
"""

import json
import pathlib
import sys

import duckdb
import numpy as np

# struct lab_truth of model/abi.h.
TRUTH = np.dtype(
    [
        ("time", "u8"),
        ("cgroup", "u8"),
        ("pid", "u4"),
        ("tid", "u4"),
        ("device", "u4"),
        ("event", "u4"),
        ("source", "u8"),
        ("target", "u8"),
        ("amount", "u8"),
    ]
)

# Part of a window below which an error is not one of anybody's.
LEAST = 0.01

# Within this part of the truth a row is right.
WITHIN = 0.1

BINS = 10


class Counter:
    """What moved that one counter saw."""

    def __init__(self, db, truth, counter):
        self.pmu, self.event = counter["pmu"], counter["event"]
        which = counter["truth"]
        seen = (truth["device"] == which["device"]) & (truth["event"] == which["event"])
        for field in ("source", "target"):
            values = which[field + "s"]
            if values is not None:
                seen &= np.isin(truth[field], values)
        moves = np.sort(truth[seen], order="time")
        number, scale = db.execute(
            "SELECT counter, scale FROM counters WHERE pmu = ? AND event = ?",
            [self.pmu, self.event],
        ).fetchone()
        self.times = moves["time"].astype(np.int64)
        self.bytes = moves["amount"] * float(which["factor"]) * scale
        self.cgroups, self.cgroup = np.unique(
            moves["cgroup"].astype(np.int64), return_inverse=True
        )
        self.pids, self.pid = np.unique(moves["pid"], return_inverse=True)
        read = db.execute(
            """SELECT tick, mono_ns + width_ns // 2 AS time FROM readings
               WHERE counter = ? AND trigger = 'timer' AND value IS NOT NULL ORDER BY tick""",
            [number],
        ).fetchnumpy()
        self.ticks, self.read = np.asarray(read["tick"]), np.asarray(read["time"])

    def read_at(self, ends, tick_ns):
        """When the readings at these times really were."""
        at = np.searchsorted(self.ticks, ends // tick_ns).clip(0, len(self.ticks) - 1)
        return np.where(self.ticks[at] == ends // tick_ns, self.read[at], ends)

    def moved(self, begins, ends, owner, owners):
        """Bytes by window and owner."""
        window = np.searchsorted(ends, self.times)
        inside = window < len(ends)
        inside[inside] &= self.times[inside] > begins[window[inside]]
        flat = window[inside] * owners + owner[inside]
        sums = np.bincount(flat, self.bytes[inside], minlength=len(ends) * owners)
        return sums.reshape(len(ends), owners)


class Found:
    """What was found of one label."""

    def __init__(self):
        self.errors, self.whole = [], []
        self.medians = []
        self.bins = np.zeros((BINS, 3))
        self.methods = {}

    def add(self, other):
        self.errors += other.errors
        self.whole += other.whole
        self.medians.append(float(np.median(np.concatenate(other.errors))))
        self.bins += other.bins
        for method, part in other.methods.items():
            self.methods[method] = self.methods.get(method, 0.0) + part

    def told(self):
        errors, whole = np.concatenate(self.errors), np.concatenate(self.whole)
        counted = sum(self.methods.values())
        return {
            "median": float(np.median(errors)),
            "p95": float(np.quantile(errors, 0.95)),
            "errors": len(errors),
            "medians": self.medians,
            "whole_median": float(np.median(whole)),
            "whole_worst": float(whole.max()),
            "methods": {method: part / counted for method, part in self.methods.items()},
            "bins": [
                {"rows": int(rows), "said": said, "right": right} for rows, said, right in self.bins
            ],
        }


def relative(value, truth, least):
    large = truth > least
    return np.abs(value[large] - truth[large]) / truth[large]


def codes(known, values, valid):
    """Places of values in a sorted list; past its end where they are not there."""
    at = np.searchsorted(known, values).clip(0, len(known) - 1)
    return np.where(valid & (known[at] == values), at, len(known))


def compare(db, fabric, counter, tick_ns):
    rows = db.execute(
        """SELECT mono_ns, window_ns, owner, coalesce(cgroup_id, 0) AS cgroup,
                  coalesce(pid, 0) AS pid, coalesce(value, 0) AS value,
                  coalesce(confidence, 0) AS confidence, method
           FROM read_parquet(?) WHERE pmu = ? AND event = ? AND total IS NOT NULL
           ORDER BY mono_ns""",
        [str(fabric), counter.pmu, counter.event],
    ).fetchnumpy()
    rows = {name: np.asarray(column) for name, column in rows.items()}
    found = Found()
    last, first, window = np.unique(rows["mono_ns"], return_index=True, return_inverse=True)
    begins = counter.read_at(last - rows["window_ns"][first], tick_ns)
    ends = counter.read_at(last, tick_ns)
    value, task = rows["value"], rows["owner"] == "task"

    owners = len(counter.cgroups)
    truth = counter.moved(begins, ends, counter.cgroup, owners)
    total = truth.sum(axis=1)
    of_cgroup = codes(counter.cgroups, rows["cgroup"], task)
    flat = window * (owners + 1) + of_cgroup
    given = np.bincount(flat, value, minlength=len(last) * (owners + 1))
    given = given.reshape(len(last), owners + 1)[:, :owners]
    found.errors.append(relative(given, truth, LEAST * total[:, None]))
    whole = truth.sum(axis=0)
    found.whole.append(relative(given.sum(axis=0), whole, LEAST * whole.sum()))

    pids = len(counter.pids)
    truth = counter.moved(begins, ends, counter.pid, pids)
    truth = np.hstack([truth, np.zeros((len(last), 1))])
    moved = truth[window, codes(counter.pids, rows["pid"], task)]
    says = (rows["owner"] != "unattributed") & (np.maximum(value, moved) > LEAST * total[window])
    right = np.abs(value - moved) <= WITHIN * moved
    said = rows["confidence"][says].astype(float)
    place = (said * BINS).astype(int).clip(0, BINS - 1)
    found.bins[:, 0] = np.bincount(place, minlength=BINS)
    found.bins[:, 1] = np.bincount(place, said, minlength=BINS)
    found.bins[:, 2] = np.bincount(place, right[says], minlength=BINS)
    given_to = np.where(rows["owner"] == "unattributed", "unattributed", rows["method"])
    for name in np.unique(given_to):
        found.methods[str(name)] = float(value[given_to == name].sum())
    return found


def dataset(task, all_found):
    directory = pathlib.Path(task["dir"])
    truth = np.fromfile(directory / "truth.bin", TRUTH)
    db = duckdb.connect()
    run = directory / "run"
    for table in ("counters", "readings"):
        db.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{run / table}.parquet')")
    tick_ns = int(
        db.execute(
            f"""SELECT decode(value) FROM parquet_kv_metadata('{run}/run.parquet')
                WHERE decode(key) = 'uncore_trace.tick_ns'"""
        ).fetchone()[0]
    )
    counters = [Counter(db, truth, counter) for counter in task["counters"]]
    counters = [counter for counter in counters if len(counter.times)]
    for label, fabric in task["made"].items():
        found = Found()
        for counter in counters:
            of_counter = compare(db, fabric, counter, tick_ns)
            found.add(of_counter)
        all_found.setdefault(label, Found()).add(found)


def recorded(directory, counters):
    """What a recording's own table says."""
    made = {"recorded": directory / "run" / "fabric.parquet"}
    all_found = {}
    dataset({"dir": directory, "counters": counters, "made": made}, all_found)
    return all_found["recorded"].told()


def main():
    task = json.loads(pathlib.Path(sys.argv[1]).read_text())
    all_found = {}
    for one in task["datasets"]:
        dataset(one, all_found)
    json.dump({label: found.told() for label, found in all_found.items()}, sys.stdout)


if __name__ == "__main__":
    main()
