"""Compares the tables that `attribute` makes of the lab's recordings with the true traffic of their tenants.

`attribution.py TASK.json` reads
`{"datasets": [{"dir", "counters", "made": {LABEL: FABRIC}, "reports": {LABEL: JSON_LINES}}]}`:
DIR has run/ and truth.bin, each counter its pmu, event and truth, each FABRIC is a table made of
it. Prints, over all datasets, the figures of each LABEL and of the floor of any rate model (floor.py)
in windows of the same length, which part of its tenants' CPUs the recorder used, and how the CPU
times of tenants on different CPUs are correlated.

What is compared, for each counter that counted something:

- A cgroup's bytes in a window are what its processes moved between the two readings that bound
  the window: readings are late by some microseconds, and this is about shares, not about timers.
- The error of a cgroup in a window is |value - truth| / truth where truth is above 1 % of the
  window's: of less, a share of the whole that nobody would miss is an error of any size.
- Misplaced is the part of a window's bytes that another cgroup or something else got: interrupts, idle
  time, kernel threads, `unattributed`.
- A bill is a cgroup's sum over the recording; its error is relative, of those above 1 % of all.
- An interval of `report` (`value_low` to `value_high`) holds the truth or does not, for each event and
  cgroup above 1 % of the event's sum.
- What the cgroup `device` moves is a device's: right is to give it to nobody (`unattributed`) or to
  that cgroup, and it has no bill.
- A row says what its confidence says; it is right within 10 % of what its process moved. Rows of
  interrupts, idle time and kernel threads are right if nothing is in them, for all that moves
  belongs to tenants. Rows below 1 % of the window, of both value and truth, are left out as above,
  and so is `unattributed`, which claims nothing.
"""

import itertools
import json
import pathlib
import sys

import duckdb
import floor
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

# Cgroups below this fraction of a window have no error.
LEAST = 0.01

# A bill whose mean confidence, weighted by bytes, is above this is one that somebody would rely on.
RELIED_ON = 0.5

# The recorder's name in the table `runtime`.
RECORDER = "uncore-trace"

# The cgroup whose processes stand for a device.
DEVICE = "/lab/device"

# A row is right if its relative error is at most this.
WITHIN = 0.1

BINS = 10

# Processes with less of a CPU's time are not compared with those of other CPUs.
LEAST_USED = 0.05


class Counter:
    """The true traffic of one counter."""

    def __init__(self, db, truth, counter, device):
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
        self.number = number
        self.times = moves["time"].astype(np.int64)
        self.bytes = moves["amount"] * float(which["factor"]) * scale
        self.cgroups, self.cgroup = np.unique(
            moves["cgroup"].astype(np.int64), return_inverse=True
        )
        self.of_device = self.cgroups == device
        self.pids, self.pid = np.unique(moves["pid"], return_inverse=True)
        read = db.execute(
            """SELECT tick, mono_ns + width_ns // 2 AS time FROM readings
               WHERE counter = ? AND trigger = 'timer' AND value IS NOT NULL ORDER BY tick""",
            [number],
        ).fetchnumpy()
        self.ticks, self.read = np.asarray(read["tick"]), np.asarray(read["time"])

    def read_at(self, ends, tick_ns):
        """The true times of the readings at these nominal times."""
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
    """The figures of one label."""

    def __init__(self):
        self.errors, self.misplaced = [], []
        self.bills, self.bills_relied_on = [], []
        self.medians = []
        self.bins = np.zeros((BINS, 3))
        self.methods = {}
        self.moved = {}
        self.intervals, self.held = 0, 0

    def add(self, other):
        self.errors += other.errors
        self.misplaced += other.misplaced
        self.bills += other.bills
        self.bills_relied_on += other.bills_relied_on
        if other.errors:
            self.medians.append(float(np.median(np.concatenate(other.errors))))
        self.bins += other.bins
        for method, part in other.methods.items():
            self.methods[method] = self.methods.get(method, 0.0) + part
        for of_cgroup, moved in other.moved.items():
            self.moved[of_cgroup] = self.moved.get(of_cgroup, 0.0) + moved
        self.intervals += other.intervals
        self.held += other.held

    def hold(self, report, paths):
        """Counts the intervals of a report that contain the truth."""
        totals = {}
        for (event, _), moved in self.moved.items():
            totals[event] = totals.get(event, 0.0) + moved
        truth = {(event, paths.get(cgroup)): moved for (event, cgroup), moved in self.moved.items()}
        for line in report:
            # The report's name of an event has its filter, too: rd_bytes_loc[root_port=0x3ff].
            event = line["event"].partition("[")[0]
            moved = truth.get((event, line["key"]), 0.0)
            low, high = line.get("value_low"), line.get("value_high")
            if low is not None and moved > LEAST * totals.get(event, 0.0):
                self.intervals += 1
                self.held += low <= moved <= high

    def windows(self, given, truth, of_device, nobody, others):
        """Adds the values of cgroups in each window, with the truth, and those of all other owners."""
        total = truth.sum(axis=1)
        least = LEAST * total[:, None]
        own = ~of_device
        self.errors.append(relative(given[:, own], truth[:, own], least))
        # A device's bytes are nobody's: the two are one owner.
        nobody = nobody + given[:, of_device].sum(axis=1) - truth[:, of_device].sum(axis=1)
        off = np.abs(given[:, own] - truth[:, own]).sum(axis=1) + np.abs(nobody) + others
        off /= 2
        self.misplaced.append(off[total > 0] / total[total > 0])

    def figures(self):
        errors, misplaced = np.concatenate(self.errors), np.concatenate(self.misplaced)
        bills = np.concatenate(self.bills) if self.bills else np.zeros(0)
        relied_on = np.concatenate(self.bills_relied_on) if self.bills else np.zeros(0)
        counted = sum(self.methods.values())
        return {
            "misplaced": float(misplaced.mean()),
            "bill_median": float(np.median(bills)) if len(bills) else None,
            "bill_worst": float(bills.max()) if len(bills) else None,
            "bills_relied_on": len(relied_on),
            "bill_worst_relied_on": float(relied_on.max()) if len(relied_on) else None,
            "median": float(np.median(errors)),
            "p95": float(np.quantile(errors, 0.95)),
            "errors": len(errors),
            "medians": self.medians,
            "methods": {method: part / counted for method, part in self.methods.items()},
            "intervals": self.intervals,
            "intervals_held": self.held,
            "bins": [
                {"rows": int(rows), "said": said, "right": right} for rows, said, right in self.bins
            ],
        }


def relative(value, truth, least):
    large = truth > least
    return np.abs(value[large] - truth[large]) / truth[large]


def codes(known, values, valid):
    """Indices of values in a sorted list; past its end for values that are not in it."""
    at = np.searchsorted(known, values).clip(0, len(known) - 1)
    return np.where(valid & (known[at] == values), at, len(known))


def compare(db, fabric, counter, tick_ns):
    """The figures of a table, and its windows."""
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
    given = given.reshape(len(last), owners + 1)
    of_nobody = np.isin(rows["owner"], ["unattributed", "device"])
    nobody = np.bincount(window, value * of_nobody, minlength=len(last))
    others = given[:, owners] - nobody
    found.windows(given[:, :owners], truth, counter.of_device, nobody, others)
    bills, whole = given[:, :owners].sum(axis=0), truth.sum(axis=0)
    least = LEAST * whole.sum()
    sure = np.bincount(of_cgroup, value * rows["confidence"], minlength=owners + 1)[:owners]
    own = ~counter.of_device
    for cgroup, moved in zip(counter.cgroups[own], whole[own]):
        found.moved[counter.event, int(cgroup)] = float(moved)
    relied_on = own & (sure > RELIED_ON * bills)
    found.bills.append(relative(bills[own], whole[own], least))
    found.bills_relied_on.append(relative(bills[relied_on], whole[relied_on], least))

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
    return found, last, rows["window_ns"][first]


def tick_length(db, run):
    """The tick of a recording, ns."""
    query = """SELECT decode(value) FROM parquet_kv_metadata(?)
               WHERE decode(key) = 'uncore_trace.tick_ns'"""
    return int(db.execute(query, [f"{run}/run.parquet"]).fetchone()[0])


def divided_truth(db, directory, pmu, event, truth, method):
    """Bytes by the number of a cgroup in the windows that a method divided: of each window the part
    that it divided."""
    records = np.fromfile(directory / "truth.bin", TRUTH)
    counter = Counter(db, records, {"pmu": pmu, "event": event, "truth": truth}, None)
    windows = db.execute(
        """SELECT mono_ns, any_value(window_ns) AS window_ns,
                  coalesce(sum(value) FILTER (method = $3) / nullif(sum(value), 0), 0) AS part
           FROM fabric WHERE pmu = $1 AND event = $2 AND total IS NOT NULL
           GROUP BY mono_ns ORDER BY mono_ns""",
        [pmu, event, method],
    ).fetchnumpy()
    windows = {name: np.asarray(column) for name, column in windows.items()}
    tick_ns = tick_length(db, directory / "run")
    ends = windows["mono_ns"]
    begins = counter.read_at(ends - windows["window_ns"], tick_ns)
    moved = counter.moved(begins, counter.read_at(ends, tick_ns), counter.cgroup, len(counter.cgroups))
    sums = windows["part"] @ moved
    return {int(cgroup): float(total) for cgroup, total in zip(counter.cgroups, sums)}


def of_floor(model, counter, last, window_ns, tick_ns):
    """The figures of a model with the true rates in these windows."""
    found = Found()
    given, truth = model.windows(last - window_ns, last, tick_ns)
    places = codes(counter.cgroups, model.cgroups, True)
    by_cgroup = np.zeros((len(counter.pids), len(counter.cgroups)))
    by_cgroup[np.arange(len(places)), places] = 1.0
    found.windows(given @ by_cgroup, truth @ by_cgroup, counter.of_device, 0.0, 0.0)
    return found


def recorders_part(db):
    """The part of the time of the CPUs of the sockets with counters that the recorder used."""
    return db.execute(
        f"""SELECT coalesce(sum(run_ns) FILTER (process = '{RECORDER}') / sum(run_ns), 0)
            FROM runtime WHERE cpu IN (SELECT cpus.cpu FROM cpus JOIN counters USING (socket))"""
    ).fetchone()[0]


def correlations(db, tick_ns):
    """Of each pair of CPUs near the counters: the largest correlation, without its sign, of the CPU times
    per tick of a process on one and a process on the other. Only processes with a part of LEAST_USED of
    the CPU count."""
    rows = db.execute(
        f"""SELECT cpu, pid, mono_ns // {tick_ns} AS tick, sum(run_ns) AS ns FROM runtime
            WHERE owner = 'task' AND process <> '{RECORDER}'
              AND cpu IN (SELECT cpus.cpu FROM cpus JOIN counters USING (socket)) GROUP BY ALL"""
    ).fetchnumpy()
    rows = {name: np.asarray(column) for name, column in rows.items()}
    if not len(rows["tick"]):
        return []
    first = rows["tick"].min()
    ticks = rows["tick"].max() - first + 1
    used = {}
    for cpu in np.unique(rows["cpu"]):
        on = rows["cpu"] == cpu
        pids, pid = np.unique(rows["pid"][on], return_inverse=True)
        series = np.zeros((len(pids), ticks))
        series[pid, rows["tick"][on] - first] = rows["ns"][on]
        series = series[series.mean(axis=1) > LEAST_USED * tick_ns]
        series = series[series.std(axis=1) > 0]
        if len(series):
            used[cpu] = (series - series.mean(axis=1)[:, None]) / series.std(axis=1)[:, None]
    pairs = itertools.combinations(used.values(), 2)
    return [float(np.abs(one @ other.T).max() / ticks) for one, other in pairs]


def dataset(task, all_found):
    directory = pathlib.Path(task["dir"])
    truth = np.fromfile(directory / "truth.bin", TRUTH)
    db = duckdb.connect()
    run = directory / "run"
    for table in ("counters", "readings", "cpus", "runtime"):
        db.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{run / table}.parquet')")
    tick_ns = tick_length(db, run)
    cgroups = json.loads((directory / "cgroups.json").read_text())
    paths = {number: path for path, number in cgroups.items()}
    device = cgroups.get(DEVICE)
    counters = [Counter(db, truth, counter, device) for counter in task["counters"]]
    counters = [counter for counter in counters if len(counter.times)]
    models = [floor.Model(db, counter, tick_ns) for counter in counters]
    models = [model if model.sees else None for model in models]
    with_floor = set()
    for label, fabric in task["made"].items():
        found = Found()
        for counter, model in zip(counters, models):
            of_counter, last, window_ns = compare(db, fabric, counter, tick_ns)
            found.add(of_counter)
            length = int(window_ns.max())
            if model and (model, length) not in with_floor:
                with_floor.add((model, length))
                of_model = of_floor(model, counter, last, window_ns, tick_ns)
                window = label.partition(" ")[2]
                all_found.setdefault(f"floor {window}", Found()).add(of_model)
        if report := task.get("reports", {}).get(label):
            lines = pathlib.Path(report).read_text().splitlines()
            found.hold([json.loads(line) for line in lines], paths)
        found.moved.clear()
        all_found.setdefault(label, Found()).add(found)
    return recorders_part(db), correlations(db, tick_ns)


def recorded(directory, counters):
    """The figures of a recording's own table."""
    made = {"recorded": directory / "run" / "fabric.parquet"}
    all_found = {}
    dataset({"dir": directory, "counters": counters, "made": made}, all_found)
    return all_found["recorded"].figures()


def main():
    task = json.loads(pathlib.Path(sys.argv[1]).read_text())
    all_found = {}
    recorder, correlated = zip(*(dataset(one, all_found) for one in task["datasets"]))
    figures = {label: found.figures() for label, found in all_found.items()}
    correlated = [of_pair for of_dataset in correlated for of_pair in of_dataset]
    about = {"recorder": float(np.mean(recorder)), "correlations": correlated}
    json.dump({"figures": figures, **about}, sys.stdout)


if __name__ == "__main__":
    main()
