"""Checks of the events of every kernel: how they were read, and the shares of cgroups."""

import json

from expect import expect


def timer(step, check):
    rows = step.rows(
        f"""SELECT decode(value) FROM parquet_kv_metadata('{step.dir}/run/run.parquet')
            WHERE decode(key) = 'uncore_trace.own'"""
    )
    expect(rows, "run.parquet does not say what the recorder used")
    used = json.loads(rows[0][0])["timer"]
    expect(used == check["timer"], f"the timer was {used}, not {check['timer']}")


def method(step, check):
    methods = dict(
        step.rows(
            """SELECT method, count(*) FROM fabric
               WHERE total > 0 AND owner <> 'unattributed' GROUP BY method"""
        )
    )
    expect(set(methods) == {check["method"]}, f"rows by method: {methods}")


def divided(step, check):
    parts = dict(
        step.rows(
            "SELECT method, sum(value) FROM fabric WHERE event = ? AND total > 0 GROUP BY method",
            check["event"],
        )
    )
    expect(parts, f"{check['event']} counted nothing: this proves nothing")
    part = parts.get(check["method"], 0) / sum(parts.values())
    expect(
        check["least"] <= part <= check["most"],
        f"{part:.1%} of {check['event']} was divided by {check['method']}, of {sorted(parts)}",
    )


def shares(step, check):
    total = step.rows(
        """SELECT sum(total) FROM (SELECT DISTINCT mono_ns, cpu, pmu, filter, total FROM fabric
           WHERE event = ?)""",
        check["event"],
    )[0][0]
    expect(total, f"{check['event']} counted nothing: this proves nothing")
    of_cgroup = dict(
        step.rows(
            """SELECT cgroup, sum(value) FROM fabric
               WHERE event = ? AND owner = 'task' GROUP BY cgroup""",
            check["event"],
        )
    )
    for cgroup in check["cgroups"]:
        share = (of_cgroup.get(cgroup) or 0) / total
        expect(share >= check["least"], f"{cgroup} has {share:.1%} of {check['event']}")


def paced(step, check):
    counts = {
        row[0]: row[1:]
        for row in step.rows(
            """SELECT cgroup, sum(value) FILTER (event = $1), sum(value) FILTER (event = $2),
                 (SELECT sum(run_ns) FROM runtime r JOIN cgroups c ON r.cgroup_id = c.id
                  WHERE c.path = f.cgroup)
               FROM fabric f WHERE owner = 'task' GROUP BY cgroup""",
            check["event"],
            check["other"],
        )
    }
    for cgroup in check["cgroups"]:
        expect(cgroup in counts, f"{cgroup} has no rows; there are {sorted(map(str, counts))}")
        one, other, ran = (float(count or 0) for count in counts[cgroup])
        expect(other > 0, f"{cgroup} has no {check['other']}: this proves nothing")
        off = one / other / check["ratio"] - 1
        expect(
            abs(off) <= check["within"],
            f"{cgroup} has {one:.0f} {check['event']} for {other:.0f} {check['other']} ({off:+.2%})",
        )
        # Interrupt time is in its count but not in its CPU time.
        expect(one >= ran * (1 - check["within"]), f"{cgroup} ran {ran:.0f} ns of {one:.0f} counts")


def slices(step, check):
    found = {
        row[0]
        for row in step.rows(
            "SELECT DISTINCT c.path FROM slices s JOIN cgroups c ON s.cgroup_id = c.id"
        )
    }
    missing = set(check["cgroups"]) - found
    expect(not missing, f"no slice of {sorted(missing)}; there are {sorted(found)}")
    over = step.rows(
        """SELECT count(*) FROM (SELECT begin_ns, end_ns,
             lag(end_ns) OVER (PARTITION BY cpu ORDER BY begin_ns, end_ns) AS before FROM slices)
           WHERE begin_ns < before OR end_ns < begin_ns"""
    )[0][0]
    expect(over == 0, f"{over} slices overlap another one of their CPU")
