"""Checks of what every kernel counts: how it was read, and which cgroups got how much."""

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
