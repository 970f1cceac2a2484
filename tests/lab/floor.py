"""The best result that a model of rates could have on a recording: a lower bound of the error.

Each process's true rate, bytes for CPU time, within HALF of each tick, times its CPU time in the tick,
is its part of the tick's bytes. No model that learns rates from counts and CPU time knows more, but one
that sees more than CPU time, such as cache misses, can.

Of the traffic of devices there is no such model: none is made of counters that see no CPU.
"""

import numpy as np

# The rate of a process is the mean over so long before and after, ns.
HALF = 50_000_000

# Less CPU time within that tells no rate, in ticks.
LEAST_TICKS = 0.02

# The CPUs that a counter sees, of a list such as 0-3,8.
SEEN = """SELECT unnest(flatten(list_transform(string_split(sees, ','), lambda part: range(
          split_part(part, '-', 1)::BIGINT, split_part(part, '-', -1)::BIGINT + 1))))
          FROM counters WHERE counter = ? AND sees <> ''"""


def within(values, half):
    """Sums of rows up to `half` before and after each row."""
    sums = np.vstack([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])
    rows = np.arange(len(values))
    return sums[np.minimum(rows + half + 1, len(values))] - sums[np.maximum(rows - half, 0)]


class Model:
    """Bytes by tick and process (of counter.pids): by the model, and the truth."""

    def __init__(self, db, counter, tick_ns):
        pids = len(counter.pids)
        self.first, ticks = counter.ticks[0], np.arange(counter.ticks[0], counter.ticks[-1] + 1)
        read = np.interp(ticks, counter.ticks, counter.read)
        truth = counter.moved(read[:-1], read[1:], counter.pid, pids)
        # A process moves in one cgroup.
        self.cgroups = np.zeros(pids, "i8")
        self.cgroups[counter.pid] = counter.cgroups[counter.cgroup]
        used = self.used(db, counter, tick_ns, len(truth))
        half = HALF // tick_ns
        moved, time = within(truth, half), within(used, half)
        rates = np.divide(moved, time, out=np.zeros_like(moved), where=time > LEAST_TICKS)
        given = rates * used
        sums, total = given.sum(axis=1), truth.sum(axis=1)
        scale = np.divide(total, sums, out=np.zeros_like(total), where=sums > 0)
        self.sees = used.any()
        self.given = np.cumsum(np.vstack([np.zeros(pids), given * scale[:, None]]), axis=0)
        self.truth = np.cumsum(np.vstack([np.zeros(pids), truth]), axis=0)

    def used(self, db, counter, tick_ns, count):
        """CPU time by tick and process, in ticks, on the CPUs that the counter sees."""
        rows = db.execute(
            f"""SELECT mono_ns // {tick_ns} - {self.first} - 1 AS tick, pid, sum(run_ns) AS ns
                FROM runtime WHERE owner = 'task' AND cpu IN ({SEEN}) GROUP BY ALL""",
            [counter.number],
        ).fetchnumpy()
        tick, ns = np.asarray(rows["tick"]), np.asarray(rows["ns"], "f8")
        pid = np.searchsorted(counter.pids, rows["pid"]).clip(0, len(counter.pids) - 1)
        there = (counter.pids[pid] == rows["pid"]) & (tick >= 0) & (tick < count)
        used = np.zeros((count, len(counter.pids)))
        np.add.at(used, (tick[there], pid[there]), ns[there] / tick_ns)
        return used

    def windows(self, begins, ends, tick_ns):
        """Bytes by the model and the truth, by window and process."""
        last = len(self.given) - 1
        begin = (begins // tick_ns - self.first).clip(0, last)
        end = (ends // tick_ns - self.first).clip(0, last)
        return self.given[end] - self.given[begin], self.truth[end] - self.truth[begin]
