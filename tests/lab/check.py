"""Compares the recordings of a guest of the lab with the true traffic.

`check.py RUN_DIR` reads RUN_DIR/steps.json and, for each step, RUN_DIR/STEP/ with truth.bin,
result.json, log.txt, dmesg.txt and the recording run/. Prints one line a failed check, one a step,
and ends with 1 if a check failed. A step without results has failed.
"""

import bisect
import itertools
import json
import pathlib
import re
import struct
import sys

import duckdb

import attribution
from expect import Failed, expect
from holders import held, holders, open_cost
from host import divided, method, paced, shares, slices, timer
from metrics import metric, value

# struct lab_truth of model/abi.h.
TRUTH = struct.Struct("=QQIIIIQQQ")


class Step:
    """The results of a step."""

    def __init__(self, directory, step):
        self.dir = directory / step["name"]
        self.step = step
        self.result = json.loads((self.dir / "result.json").read_text())
        self.log = (self.dir / "log.txt").read_text(errors="replace")
        self.db = duckdb.connect()
        if self.recorded():
            for table in ("counters", "readings", "fabric", "loss", "runtime", "irqs", "slices", "cgroups", "holders"):
                file = self.dir / "run" / f"{table}.parquet"
                self.db.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{file}')")

    def recorded(self):
        return (self.dir / "run").exists()

    def rows(self, query, *values):
        return self.db.execute(query, values).fetchall()

    def by_cgroup(self, truth):
        """The true count of a counter, by the path of the cgroup that moved it."""
        paths = {number: path for path, number in self.cgroups().items()}
        sums = {}
        for record in TRUTH.iter_unpack((self.dir / "truth.bin").read_bytes()):
            if (record[4], record[5]) == (truth["device"], truth["event"]):
                path = paths.get(record[1])
                sums[path] = sums.get(path, 0) + record[8] * truth["factor"]
        return sums

    def cgroups(self):
        """Their numbers by path."""
        return json.loads((self.dir / "cgroups.json").read_text())

    def sources(self, truth):
        """The true count of a counter, by source."""
        data = (self.dir / "truth.bin").read_bytes()
        records = TRUTH.iter_unpack(data)
        where = (truth["device"], truth["event"])
        return {record[6] for record in records if (record[4], record[5]) == where}

    def moves(self, truth):
        """(time, amount) of the moves that a counter must count, in order."""
        data = (self.dir / "truth.bin").read_bytes()
        expect(len(data) % TRUTH.size == 0, "the truth log ends in the middle of a record")
        seen = []
        for record in TRUTH.iter_unpack(data):
            time, _, _, _, device, event, source, target, amount = record
            if (
                device == truth["device"]
                and event == truth["event"]
                and (truth["sources"] is None or source in truth["sources"])
                and (truth["targets"] is None or target in truth["targets"])
            ):
                seen.append((time, amount * truth["factor"]))
        seen.sort()
        return seen

    def counter(self, check):
        """(scale, scaled total, raw total) of a counter, which must be the one that was meant."""
        found = self.rows(
            "SELECT pmu, event, state, error FROM counters WHERE counter = ?", check["counter"]
        )
        expect(found, f"there is no counter {check['counter']}")
        pmu, event, state, error = found[0]
        expect(
            pmu == check["pmu"] and event.lower() == check["event"].lower(),
            f"counter {check['counter']} is {pmu}/{event}/",
        )
        expect(state == "opened", f"it was not opened: {error}")


def exit_code(step, check):
    result = step.result
    expect(not result["timed_out"], "it did not end")
    lines = step.log.strip().splitlines()
    failed = [line for line in lines if "FAILED" in line]
    last = failed[:1] or lines[-1:] or ["it said nothing"]
    expect(result["exit"] == check["code"], f"exit code {result['exit']}: {last[0]}")
    for words in check["says"]:
        expect(words in step.log, f"it does not say {words!r}: {last[0]}")


# What a recorder loses on a machine that is emulated: its CPUs stand still, and it drains late.
OF_EMULATION = {"record was dropped", "records were dropped", "gap in the records of a CPU", "gaps in the records of a CPU"}


def recorded(step, check):
    result = step.result
    expect(not result["timed_out"], "it did not end")
    said = re.search(r"incomplete: ([^:\n]*)", step.log)
    lost = set(re.findall(r"\d+ ([^,]+)", said[1])) if said else set()
    expect(
        (result["exit"], bool(lost)) in {(0, False), (1, True)} and lost <= OF_EMULATION,
        f"exit code {result['exit']}, lost: {', '.join(sorted(lost)) or 'nothing'}",
    )


def kernel_silent(step, check):
    for line in (step.dir / "dmesg.txt").read_text(errors="replace").splitlines():
        for words in check["about"]:
            expect(words not in line, f"the kernel logged: {line}")


def raw_total(step, counter):
    rows = step.rows("SELECT max(value) FROM readings WHERE counter = ?", counter)
    expect(rows[0][0] is not None, "it was never read")
    return rows[0][0]


def exact(step, check):
    step.counter(check)
    moves = step.moves(check["truth"])
    truth = sum(amount for _, amount in moves)
    counted = raw_total(step, check["counter"])
    expect(truth > 0, "nothing moved: this proves nothing")
    expect(counted == truth, f"counted {counted}, moved {truth} ({counted - truth:+})")
    ahead = check["truth"]["ahead"]
    follows(good_readings(step, check["counter"]), Between(moves), (0, 0), ahead)
    scale = step.rows("SELECT scale FROM counters WHERE counter = ?", check["counter"])[0][0]
    total = windows_total(step, check["counter"])
    expect(
        total is not None and abs(total - truth * scale) <= truth * scale * 1e-9,
        f"the windows sum to {total}, moved {truth * scale}",
    )


class Between:
    """The amount that moved between two times; the moves are in order."""

    def __init__(self, moves):
        self.times = [time for time, _ in moves]
        self.sums = [0]
        for _, amount in moves:
            self.sums.append(self.sums[-1] + amount)

    def before(self, time):
        return self.sums[bisect.bisect_left(self.times, time)]

    def until(self, time):
        return self.sums[bisect.bisect_right(self.times, time)]


def good_readings(step, counter):
    return step.rows(
        """SELECT cpu, mono_ns, mono_ns + width_ns, value FROM readings
           WHERE counter = ? AND value IS NOT NULL ORDER BY mono_ns""",
        counter,
    )


def follows(readings, between, base, ahead):
    """Each reading holds what had moved before it began, and nothing that moved after its end.

    `base` is what was not counted before the first of them: from, and at most.
    """
    least, most = base
    for _, begin, end, value in readings:
        low, high = between.before(begin) - most, between.until(end) - least + ahead
        expect(
            low <= value <= high,
            f"the reading at {begin} is {value}, by then {low} to {high} had moved",
        )


def resumed(step, check):
    step.counter(check)
    between = Between(step.moves(check["truth"]))
    readings = good_readings(step, check["counter"])
    # A counter that is opened again may be read on the CPU where it was.
    starts = [
        row[0]
        for row in step.rows(
            "SELECT mono_ns FROM readings WHERE counter = ? AND trigger = 'start' ORDER BY mono_ns",
            check["counter"],
        )
    ]
    key = lambda row: (row[0], bisect.bisect_left(starts, row[1]))
    stays = [list(stay) for _, stay in itertools.groupby(readings, key=key)]
    cpus = [stay[0][0] for stay in stays]
    ends = [stay[-1][2] for stay in stays]
    expect(len(stays) > 1, f"it was read on CPU {cpus} only, and went on all the time")
    for stay in stays[:-1]:
        # It can still be read where it was when its driver has already taken it off the PMU. All
        # such readings are alike, and the first of them is short of what has moved by then.
        last = stay[-1][3]
        while len(stay) > 1 and stay[-1][3] == last:
            stay.pop()
    ahead = check["truth"]["ahead"]
    least = most = 0
    for number, stay in enumerate(stays):
        if number > 0:
            gap = stays[number - 1][-1][1]
            _, begin, end, value = stay[0]
            # What is not in the first reading on the new CPU moved in the gap and was not counted.
            least = max(least, between.before(begin) - value)
            moved = between.until(end) - between.before(gap)
            most = min(between.until(end) - value, most + moved) + ahead
            expect(least <= most, f"CPU {cpus}: {least} to {most} were lost in the gap")
            # It counts from its start on, and may be read late after that.
            started = [start for start in starts if ends[number - 1] < start < begin]
            (invented,) = step.rows(
                """SELECT count(*) FROM fabric WHERE counter = ? AND total IS NOT NULL
                   AND mono_ns - window_ns > ? AND mono_ns < ?""",
                check["counter"],
                ends[number - 1],
                max(started, default=begin),
            )[0]
            expect(invented == 0, f"{invented} windows have a count though it did not count")
        follows(stay, between, (least, most), ahead)
    total, truth = windows_total(step, check["counter"]), between.until(2**63)
    scale = step.rows("SELECT scale FROM counters WHERE counter = ?", check["counter"])[0][0]
    expect(
        (truth - most) * scale * (1 - 1e-9) <= total <= (truth - least + ahead) * scale,
        f"the windows sum to {total}, moved {truth * scale}, lost in the gap {least} to {most}",
    )


def differs(step, check):
    step.counter(check)
    truth = sum(amount for _, amount in step.moves(check["truth"]))
    counted = raw_total(step, check["counter"])
    expect(counted != truth, f"counted {counted}, which is right: the wrong bit went unnoticed")


def near(step, check):
    step.counter(check)
    truth = sum(amount for _, amount in step.moves(check["truth"]))
    rows = step.rows(
        """SELECT sum(total / scale) FROM (
             SELECT DISTINCT f.mono_ns, f.total, c.scale FROM fabric f
             JOIN counters c USING (counter) WHERE counter = ?)""",
        check["counter"],
    )
    counted = rows[0][0] or 0
    off = counted / truth - 1
    expect(abs(off) <= check["within"], f"counted {counted:.0f}, moved {truth} ({off:+.2%})")


def took_turns(step, check):
    shares = step.rows(
        """SELECT counter, max(running)::DOUBLE / max(enabled) FROM readings
           WHERE value IS NOT NULL AND enabled IS NOT NULL GROUP BY counter"""
    )
    partly = [share for _, share in shares if 0 < share < 0.9]
    expect(
        len(partly) == check["counters"],
        f"{len(partly)} of {check['counters']} counters ran part of the time: {shares}",
    )


def never_ran(step, check):
    never, invented = step.rows(
        """SELECT count(*), count(*) FILTER (value IS NOT NULL OR total IS NOT NULL)
           FROM fabric WHERE running = 0"""
    )[0]
    expect(never > 0, "there is no window in which a counter never ran: this proves nothing")
    expect(invented == 0, f"{invented} of {never} windows without a running counter have a count")


def conserved(step, check):
    worst, spread, windows = step.rows(
        """SELECT max(abs(parts - total) / greatest(abs(total), 1)), max(spread), count(*) FROM (
             SELECT sum(value) AS parts, max(total) AS total, max(total) - min(total) AS spread
             FROM fabric WHERE total IS NOT NULL GROUP BY mono_ns, counter)"""
    )[0]
    expect(windows > 0, "there is no window: this proves nothing")
    expect(worst <= 1e-9 and spread == 0, f"parts and whole differ by {worst:.1e} in a window")
    # What the last reading within the last window says must be in the windows: with the reading of
    # its end missing, that window may hold more. The first one begins with a reading of the timer, which
    # may come after readings at switches.
    for counter, scale, first, last in step.rows(
        """SELECT c.counter, c.scale,
                  coalesce(min(r.value) FILTER (r.trigger = 'timer'), min(r.value)), max(r.value)
           FROM counters c JOIN readings r USING (counter)
           WHERE c.role <> 'weight' AND r.mono_ns <= (SELECT max(mono_ns) FROM fabric) GROUP BY ALL
           HAVING bool_and(r.enabled IS NULL OR r.enabled = r.running)"""
    ):
        if last is not None:
            total = windows_total(step, counter)
            expect(
                total is not None and total >= (last - first) * scale * (1 - 1e-9),
                f"counter {counter}: its windows sum to {total}, it counted {last - first}",
            )


def windows_total(step, counter):
    """The sum over all windows, in the counter's unit."""
    return step.rows(
        """SELECT sum(total) FROM (SELECT DISTINCT mono_ns, total FROM fabric
           WHERE counter = ?)""",
        counter,
    )[0][0]


def on_readers(step, check):
    twice = step.rows(
        "SELECT pmu, event, filter FROM counters GROUP BY ALL HAVING count(*) > 1"
    )
    expect(not twice, f"opened twice: {twice}")
    expected = {owned["pmu"]: owned["cpus"] for owned in check["pmus"]}
    found = step.rows("SELECT DISTINCT pmu FROM counters WHERE state = 'opened'")
    opened = {row[0] for row in found}
    expect(opened == set(expected), f"opened {sorted(opened)}, not {sorted(expected)}")
    for pmu, cpu in step.rows("SELECT DISTINCT pmu, cpu FROM counters"):
        expect(cpu in expected[pmu], f"{pmu} is read on CPU {cpu}, not one of {expected[pmu]}")
    for pmu, cpu, owner, error in step.rows(
        """SELECT DISTINCT c.pmu, r.cpu, c.cpu, r.error FROM readings r
           JOIN counters c USING (counter) WHERE r.cpu <> c.cpu OR r.error IS NOT NULL"""
    ):
        raise Failed(f"{pmu} of CPU {owner} was read on CPU {cpu}, errno {error}")


def read_at_switches(step, check):
    failed = step.rows("SELECT DISTINCT counter, cpu, error FROM readings WHERE error IS NOT NULL")
    expect(not failed, f"readings failed (counter, CPU, errno): {failed}")
    found = set(
        step.rows(
            """SELECT DISTINCT c.counter, r.cpu FROM readings r JOIN counters c USING (counter)
               WHERE r.trigger = 'sched' AND r.value IS NOT NULL"""
        )
    )
    counters = step.rows(
        f"SELECT counter, cpu FROM counters WHERE state = 'opened' AND pmu LIKE '{check['pmus']}'"
    )
    expect(counters, f"no counter of {check['pmus']}")
    for counter, reader in counters:
        own = next(cpus for cpus in check["sockets"] if reader in cpus)
        for cpu in own:
            expect((counter, cpu) in found, f"counter {counter} was not read on CPU {cpu}")
        others = {cpu for read, cpu in found if read == counter} - set(own)
        expect(not others, f"counter {counter} was read on CPUs of another socket: {others}")


def softirqs(step, check):
    found = step.rows("SELECT DISTINCT name FROM irqs WHERE owner = 'softirq'")
    expect(bool(found) == check["any"], f"softirqs with time of their own: {found}")


def lost(step, check):
    causes = {row[0] for row in step.rows("SELECT DISTINCT cause FROM loss")}
    missing = set(check["causes"]) - causes
    expect(not missing, f"no loss {sorted(missing)}; there are {sorted(causes)}")


def lost_only(step, check):
    found = step.rows("SELECT cause, sum(count), any_value(detail) FROM loss GROUP BY ALL")
    other = [row for row in found if row[0] not in check["causes"]]
    expect(not other, f"other losses: {other}")


def memory(step, check):
    query = "SELECT decode(value) FROM parquet_kv_metadata(?) WHERE decode(key) = 'uncore_trace.own'"
    own = json.loads(step.rows(query, str(step.dir / "run" / "fabric.parquet"))[0][0])
    mib = own["max_rss_bytes"] / 2**20
    expect(mib <= check["most_mib"], f"{mib:.1f} MiB, more than {check['most_mib']}")


def attributed(step, check):
    found = attribution.recorded(step.dir, check["counters"])
    expect(found["errors"] > 0, "nobody moved anything: this proves nothing")
    expect(
        found["median"] <= check["median"],
        f"half of the shares are {found['median']:.1%} off or more, by {found['methods']}",
    )


def given(step, check):
    """With a method, of the windows that it divided, of each the part that it divided: which windows
    those are depends on when the machine was late, and so does who ran in them."""
    event, method = check["event"], check.get("method")
    of_cgroup = dict(
        step.rows(
            """SELECT cgroup, sum(value) FROM fabric
               WHERE event = $1 AND ($2 IS NULL OR method = $2) AND owner = 'task' GROUP BY cgroup""",
            event,
            method,
        )
    )
    pmu, scale = step.rows("SELECT any_value(pmu), any_value(scale) FROM counters WHERE event = ?", event)[0]
    if method:
        sums = attribution.divided_truth(step.db, step.dir, pmu, event, check["truth"], method)
        paths = {number: path for path, number in step.cgroups().items()}
        truth = {paths.get(number): moved for number, moved in sums.items()}
    else:
        truth = {path: moved * scale for path, moved in step.by_cgroup(check["truth"]).items()}
    cgroups = check["cgroups"]
    for group in [cgroups] if check["together"] else [[cgroup] for cgroup in cgroups]:
        names = " and ".join(group)
        moved = sum(truth.get(cgroup, 0) for cgroup in group)
        expect(moved > 0, f"{names} moved nothing: this proves nothing; of {sorted(map(str, truth))}")
        off = sum(of_cgroup.get(cgroup, 0) for cgroup in group) / moved - 1
        expect(abs(off) <= check["within"], f"{names} got {off:+.1%} of what was moved")


def confident(step, check):
    for cgroup in check["cgroups"]:
        (found,) = step.rows(
            """SELECT sum(confidence * value) / sum(value) FROM fabric
               WHERE event = ? AND cgroup = ? AND owner = 'task' AND confidence IS NOT NULL
               AND mono_ns > (SELECT min(mono_ns) FROM fabric) + ? * 1000000""",
            check["event"],
            cgroup,
            check["after_ms"],
        )[0]
        expect(found is not None, f"{cgroup} got nothing: this proves nothing")
        expect(found >= check["least"], f"the confidence of {cgroup} is {found:.2f} on average")


def replayed(step):
    """The `fabric` that `attribute` made from the step's raw tables equals the recorded one."""
    log = step.dir / "attribute.txt"
    expect(not log.exists(), f"attribute failed: {log.read_text() if log.exists() else ''}")
    same(step, step.dir / "attribute.parquet", step.dir / "run" / "fabric.parquet")


# Windows that ended this long before a recorder was late were divided as usual.
DIVIDED_NS = 6_000_000_000


def same_rows(step, check):
    other = step.dir.parent / check["step"] / "run" / "fabric.parquet"
    same(step, step.dir / check["file"], other)


def same(step, one, other):
    # `other` was recorded.
    loss = other.parent / "loss.parquet"
    query = f"SELECT min(mono_ns) FROM read_parquet('{loss}') WHERE cause = 'overload'"
    late = step.rows(query)[0][0]
    before = "true" if late is None else f"mono_ns < {late - DIVIDED_NS}"
    # The guest has another architecture, which makes no difference (attribute/matrix.rs).
    for left, right in ((one, other), (other, one)):
        rows = step.rows(
            f"""SELECT count(*) FROM (SELECT * FROM read_parquet('{left}') WHERE {before}
                EXCEPT ALL SELECT * FROM read_parquet('{right}') WHERE {before})"""
        )
        expect(rows[0][0] == 0, f"{rows[0][0]} rows of {left} are not in {right}")


def witnesses(step, check):
    found = step.rows(
        """SELECT cpu FROM counters WHERE pmu = ? AND role = 'weight' AND state = 'opened'
           AND counter NOT IN (SELECT counter FROM loss
                               WHERE cause = 'witness_lost' AND counter IS NOT NULL)""",
        check["pmu"],
    )
    cpus = sorted(cpu for (cpu,) in found)
    expect(cpus == check["cpus"], f"witnesses on CPUs {cpus}, not {check['cpus']}")


def verified(step, check):
    wrong = (step.dir / "verified.txt").read_text().splitlines()
    expect(not wrong, "; ".join(wrong))


def kept(step, check):
    files = [str(file) for file in step.dir.glob("ring/kept/*/fabric.parquet")]
    expect(files, "the trigger kept nothing")
    found = step.db.execute(
        "SELECT sum(value) FROM read_parquet(?) WHERE event = ?", [files, check["event"]]
    ).fetchone()[0]
    moved = step.by_cgroup(check["truth"])
    loud, total = moved[check["cgroup"]], sum(moved.values())
    expect(loud > 0.5 * total, "the burst was none: this proves nothing")
    expect(
        0.99 * loud <= (found or 0) <= 1.001 * total,
        f"it kept {found} of {loud} that moved in the burst, of {total} in all",
    )


def no_recording(step, check):
    left = sorted(path.name for path in step.dir.glob("run*"))
    expect(not left, f"it left {left} behind")


CHECKS = {
    "exit": exit_code,
    "recorded": recorded,
    "kernel_silent": kernel_silent,
    "exact": exact,
    "differs": differs,
    "near": near,
    "metric": metric,
    "value": value,
    "took_turns": took_turns,
    "never_ran": never_ran,
    "conserved": conserved,
    "on_readers": on_readers,
    "read_at_switches": read_at_switches,
    "lost": lost,
    "lost_only": lost_only,
    "memory": memory,
    "resumed": resumed,
    "timer": timer,
    "method": method,
    "shares": shares,
    "divided": divided,
    "given": given,
    "same_rows": same_rows,
    "confident": confident,
    "paced": paced,
    "slices": slices,
    "softirqs": softirqs,
    "attributed": attributed,
    "witnesses": witnesses,
    "verified": verified,
    "kept": kept,
    "holders": holders,
    "held": held,
    "open_cost": open_cost,
    "no_recording": no_recording,
}


def subject(check):
    return f" {check['pmu']}/{check['event']}/" if "pmu" in check else ""


def run(directory, step):
    """Failures of one step."""
    try:
        found = Step(directory, step)
    except (OSError, ValueError, duckdb.Error) as error:
        return [f"{step['name']}: nothing to check: {str(error).splitlines()[0]}"]
    failures = []
    for check in step["checks"]:
        try:
            CHECKS[check["check"]](found, check)
        except (Failed, OSError, duckdb.Error) as error:
            first = str(error).splitlines()[0]
            failures.append(f"{step['name']}: {check['check']}{subject(check)}: {first}")
    if (found.dir / "run" / "runtime.parquet").exists():
        try:
            replayed(found)
        except (Failed, OSError, duckdb.Error) as error:
            failures.append(f"{step['name']}: replayed: {str(error).splitlines()[0]}")
    return failures


# Lines of the log of a failed step that are printed: a screen of `top`, or a panic.
LOG_LINES = 60


def print_log(path):
    """Where the results do not outlive the run, this is all that says why a step failed."""
    if path.exists():
        for line in path.read_text(errors="replace").splitlines()[-LOG_LINES:]:
            print(f"lab: | {line}")


def main():
    directory = pathlib.Path(sys.argv[1])
    steps = json.loads((directory / "steps.json").read_text())
    failed = 0
    for step in steps:
        failures = run(directory, step)
        failed += bool(failures)
        for failure in failures:
            print(f"lab: {failure}")
        if failures:
            print_log(directory / step["name"] / "log.txt")
        verdict = "FAILED" if failures else "ok"
        print(f"lab: {step['name']}: {len(step['checks'])} checks: {verdict}")
    (directory / "verdict.json").write_text(
        json.dumps({"passed": len(steps) - failed, "failed": failed})
    )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
