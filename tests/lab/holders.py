"""Who held a device, compared with what the tenants did: `hold.rs` of the guest writes its log."""

import json

from expect import expect


def log(directory):
    return [json.loads(line) for line in (directory / "held.jsonl").read_text().splitlines()]


def spans(lines, paths):
    """(pid, cgroup, how, begin, end) of each time in which a process held the device; begin and end are
    each two moments, or None."""
    held, found = {}, []
    for line in sorted(lines, key=lambda line: (line["begin"], line["what"] == "got")):
        pid, moments = line["pid"], (line["begin"], line["end"])
        if line["what"] == "got":
            expect(pid not in held, f"the log has process {pid} twice")
            held[pid] = (pid, paths[line["cgroup"]], line["how"], moments)
        elif line["what"] == "left":
            found.append((*held.pop(pid), moments))
    return found + [(*span, None) for span in held.values()]


def holders(step, check):
    unseen = step.rows("SELECT detail FROM loss WHERE cause = 'holder_unseen'")
    expect(not unseen, f"files were not followed: {unseen}")
    lines = log(step.dir)
    late = check["within_us"] * 1000
    rows = step.rows(
        """SELECT pid, cgroup_id, learnt, begin_ns, end_ns, bdf, port FROM holders
           WHERE device = ? ORDER BY begin_ns""",
        check["device"],
    )
    for storm in (line for line in lines if line["what"] == "storm"):
        own = [row for row in rows if row[0] == storm["pid"]]
        rows = [row for row in rows if row[0] != storm["pid"]]
        expect(
            len(own) == storm["times"],
            f"process {storm['pid']} held it {storm['times']} times, the table has {len(own)}",
        )
        outside = [row for row in own if not storm["begin"] <= row[3] <= row[4] <= storm["end"] + late]
        expect(not outside, f"not in the storm: {outside[:1]}")
    wanted = sorted(spans(lines, step.cgroups()), key=lambda span: span[3])
    expect(wanted, "nobody held it: this proves nothing")
    short = [(pid, cgroup, how) for pid, cgroup, how, *_ in wanted]
    expect([row[:3] for row in rows] == short, f"the table has {rows}, the log {wanted}")
    for row, (*_, began, ended) in zip(rows, wanted):
        for time, moments in ((row[3], began), (row[4], ended)):
            if moments is None:
                expect(time is None, f"it held it to the end: {row}")
                continue
            first, last = moments
            expect(
                time is not None and first <= time <= last + late,
                f"process {row[0]}: {time}, not {first} to {last}: {row}",
            )
        expect(row[5] and row[6] and row[5] != row[6], f"no function or no port: {row}")


def held(step, check):
    """The bytes of each window are those of who holds the device, in equal parts, and of nobody else."""
    lines = log(step.dir)
    paths = step.cgroups()
    names = {number: path for path, number in paths.items()}
    # By cgroup, each span without and with the moments in which it began and ended.
    inner, outer = {}, {}
    for _, cgroup, _, began, ended in spans(lines, paths):
        first, last = ended or (2**63, 2**63)
        inner.setdefault(names[cgroup], []).append((began[1], first))
        outer.setdefault(names[cgroup], []).append((began[0], last))
    windows = {}
    for end, length, total, owner, cgroup, value, confidence in step.rows(
        """SELECT mono_ns, window_ns, total, owner, cgroup, value, cgroup_confidence FROM fabric
           WHERE event = ? AND total > 0 ORDER BY mono_ns""",
        check["event"],
    ):
        of = windows.setdefault((end - length, end, total), {})
        if value:
            sum_of, least = of.get((owner, cgroup), (0.0, 1.0))
            of[owner, cgroup] = (sum_of + value, min(least, confidence))
    alone = shared = 0
    for (begin, end, total), of in windows.items():
        all_of_it = {name for name, spans in inner.items() if covers(spans, begin, end)}
        some_of_it = {
            name for name, spans in outer.items() if any(a < end and begin < b for a, b in spans)
        }
        tasks = {cgroup: given for (owner, cgroup), given in of.items() if owner == "task"}
        expect(set(tasks) <= some_of_it, f"at {end}: {sorted(some_of_it)} hold it, {tasks} got it")
        if all_of_it != some_of_it or not all_of_it:
            continue
        for name in all_of_it:
            value, confidence = tasks.get(name, (0.0, 1.0))
            part = value / total
            expect(
                abs(part - 1 / len(all_of_it)) <= check["within"],
                f"at {end}: {name} got {part:.1%} of what {len(all_of_it)} hold: {of}",
            )
            expect(
                (confidence > 0.5) == (len(all_of_it) == 1),
                f"at {end}: the confidence of {name} among {len(all_of_it)} is {confidence}",
            )
        alone, shared = alone + (len(all_of_it) == 1), shared + (len(all_of_it) > 1)
    expect(alone > 0, "nobody held it alone: this proves nothing")
    if check["shared"]:
        expect(shared > 0, "two never held it: this proves nothing")
        return
    # A hand-over within a tick: what moves in one is at most twice the mean.
    scale = step.rows("SELECT any_value(scale) FROM counters WHERE event = ?", check["event"])[0][0]
    most = 2 * check["tick_ns"] * sum(amount for _, amount in step.moves(check["truth"]))
    most *= scale / sum(b - a for spans in inner.values() for a, b in spans if b < 2**63)
    for name, moved in step.by_cgroup(check["truth"]).items():
        given = sum(of.get(("task", name), (0.0,))[0] for of in windows.values())
        off = given - moved * scale
        expect(abs(off) <= check["within"] * moved * scale + most, f"{name} got {off:+.0f} of {moved * scale:.0f}")


def covers(spans, begin, end):
    """Whether these times hold all of another."""
    for first, last in sorted(spans):
        if first <= begin < last:
            begin = last
    return begin >= end


def open_cost(step, check):
    def each(directory):
        storms = [line for line in log(directory) if line["what"] == "storm"]
        return {line["cgroup"]: line["cpu_ns"] / line["opens"] for line in storms}

    before, now = each(step.dir.parent / check["than"]), each(step.dir)
    for cgroup, most in check["most"].items():
        more = now[cgroup] - before[cgroup]
        print(f"lab: {step.step['name']}: {cgroup}: {before[cgroup]:.0f} ns, and {more:.0f} ns with the recorder")
        expect(more <= most, f"{cgroup}: an open takes {more:.0f} ns more than {before[cgroup]:.0f}, above {most}")
