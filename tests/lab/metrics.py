"""Checks of the output of `stat`: metrics, with the lab's own formulas."""

import json

from expect import expect


def printed(step):
    lines = (step.dir / "stat.json").read_text().splitlines()
    return [json.loads(line) for line in lines if line.strip()]


def metric(step, check):
    rows = printed(step)
    time = [float(row["counter-value"]) for row in rows if row.get("event") == "duration_time"]
    expect(len(time) == 1 and time[0] > 0, f"it does not say how long it counted: {time}")
    left = dict(zip(check["pmus"], check["inputs"]))
    for row in rows:
        name, _, of = row.get("metric", "").rstrip("]").partition(" [")
        pmu = of.partition(",")[0]
        own = [it for it in left if it == pmu or it.startswith(f"{pmu}_")]
        # Other PMUs may have a metric of the same name.
        if name == check["metric"] and own:
            agrees(step, check, row, [left.pop(it) for it in own], time[0])
    expect(not left, f"no row of {check['metric']} is about {sorted(left)}")


def value(step, check):
    found = [row for row in printed(step) if row.get("metric", "").startswith(check["metric"])]
    expect(len(found) == 1, f"{len(found)} rows of {check['metric']}")
    number = found[0]["metric-value"]
    expect(
        number is not None and abs(number / check["value"] - 1) <= check["within"],
        f"{found[0]['metric']} is {number}, expected {check['value']}",
    )


def agrees(step, check, row, inputs, time):
    expected = value_of(step, check["formula"], inputs, time)
    value = row["metric-value"]
    expect(value is not None, f"{row['metric']} has no value, expected {expected}")
    expect(expected != 0, f"{row['metric']} is to be nothing: this proves nothing")
    off = value / expected - 1
    expect(
        abs(off) <= check["within"],
        f"{row['metric']} is {value}, expected {expected} ({off:+.2e})",
    )


def value_of(step, formula, inputs, time):
    """The value of the formula for the true traffic, over these instances."""
    each = [counts(step, its) for its in inputs]
    if not formula["pooled"]:
        return sum(evaluate(formula["value"], sources, time) for sources in each)
    sums = {
        event: {
            source: sum(sources[event].get(source, 0) for sources in each)
            for source in set().union(*(sources[event] for sources in each))
        }
        for event in each[0]
    }
    return evaluate(formula["value"], sums, time * len(each))


def counts(step, inputs):
    """By event and source."""
    found = {}
    for event, truth in inputs.items():
        by_source = found.setdefault(event, {})
        for source in truth["sources"] or sorted(step.sources(truth)):
            moves = step.moves(truth | {"sources": [source]})
            by_source[source] = sum(amount for _, amount in moves)
    return found


def evaluate(formula, sources, time):
    names = {event: sum(by_source.values()) for event, by_source in sources.items()}
    of = lambda event, *wanted: sum(sources[event].get(source, 0) for source in wanted)
    return eval(formula, {"__builtins__": {}}, names | {"t": time, "of": of})
