"""Sums of shares with their interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ._interval import TENANTS, caused, divides_cgroups, ends, of_somebody, reaches, squared_width
from ._lines import EVENT, distinct, numbered, rows_of, total

COLUMNS = ["counter", "mono_ns", "window_ns", "value", "total", "confidence", "socket", "comm", "cgroup"]
#: Recordings of older versions lack it.
LATER = "cgroup_confidence"


def sums(rows: Any, by: str | Sequence[str] = "cgroup") -> pa.Table:
    """One line for each event, owner and values of the columns `by`.

    `rows` are of `fabric`, of one boot of one host. They may be a part of its time and of its events, but must be the
    rows of all owners: the time that is known is known from them. `low` and `high` of lines by `pid` or `comm` are
    made of the confidences of processes, those of all other lines of the confidences of cgroups.

    Columns of the result:

    ================================ ============================================================================
    `event`, `filter`, `unit`        what was counted
    `owner`, and the columns of `by` who had it
    `value`                          sum, in `unit`; null: no window of the line has a value
    `low`, `high`                    90 % interval of `value`, in `unit`; null: no row has a confidence
    `known_s`                        time that windows with a value cover, seconds
    `per_s`                          `value` / `known_s`, in `unit` a second
    `confidence`                     mean of the rows' confidences, weighted by value, 0 to 1
    ================================ ============================================================================

    Lines are in the order of `event`, `filter`, `unit`, and the largest value first.
    """
    table, names = rows_of(rows, by, COLUMNS, LATER)
    return summed(table, names, divides_cgroups(names))


def summed(table: pa.Table, names: Sequence[str], is_divided: bool) -> pa.Table:
    """The sums of `rows_of`. `is_divided`: the lines divide cgroups, whatever the columns `names` are called."""
    table = numbered(numbered(table, EVENT, "what"), ["what", "owner", *names], "line")
    table = reaches(caused(table, is_divided))
    sure = pc.cast(table["confidence"], pa.float64())
    sure = pc.if_else(pc.is_valid(table["value"]), sure, None)
    table = table.append_column("plain", sure)
    table = table.append_column("by_value", pc.multiply(sure, table["share"]))
    table = table.append_column("claimed", pc.if_else(pc.is_valid(sure), table["share"], None))
    found = total(table, ["line"], value="value", plain="plain", by_value="by_value", claimed="claimed")
    claims = table.group_by("line").aggregate([("plain", "count")])
    most = table.group_by(["line", "counter", "mono_ns", "window_ns"]).aggregate([("total", "max")])
    for part in [claims, total(most, ["line"], most="total_max"), _width(table)]:
        found = found.join(part, "line")
    found = found.join(distinct(table, "line", ["what", *EVENT, "owner", *names]), "line")
    found = found.join(_known(table), "what").join(_events(table), "what")
    low, high = ends(found["value"], found["down"], found["up"], found["most"])
    beyond = pc.max_element_wise(pc.min_element_wise(pc.add(high, found["of_somebody"]), found["whole"]), high)
    is_tenant = pc.and_(pc.is_in(found["owner"], pa.array(TENANTS)), pc.greater(found["whole"], 0.0))
    high = pc.if_else(pc.fill_null(is_tenant, False), beyond, high)
    is_claimed = pc.greater(found["plain_count"], 0)
    weighted = pc.divide(found["by_value"], pc.if_else(pc.greater(found["claimed"], 0.0), found["claimed"], None))
    plain = pc.divide(found["plain"], pc.cast(found["plain_count"], pa.float64()))
    answer = {name: found[name] for name in [*EVENT, "owner", *names, "value"]} | {
        "low": pc.if_else(is_claimed, low, None),
        "high": pc.if_else(is_claimed, high, None),
        "known_s": found["known_s"],
        "per_s": pc.divide(found["value"], pc.if_else(pc.greater(found["known_s"], 0.0), found["known_s"], None)),
        "confidence": pc.coalesce(weighted, plain),
    }
    order = [(name, "ascending") for name in EVENT]
    order += [("value", "descending"), *((name, "ascending") for name in ["owner", *names])]
    return pa.table(answer).sort_by(order)


def _width(table: pa.Table) -> pa.Table:
    """Distances `down` and `up` to both ends of the interval of each line."""
    table = numbered(table, ["line", "socket", "cause"], "error")
    known = table.filter(pc.and_(table["is_known"], pc.is_valid(table["value"])))
    # Rows of one cause on one socket have the same error; those of different ones are independent.
    causes = total(known, ["line", "error"], down="down", up="up", all_down="all_down", all_up="all_up")
    windows = known.group_by(["line", "error", "mono_ns"]).aggregate([("window_ns", "max")])
    causes = causes.join(total(windows, ["line", "error"], windows_ns="window_ns_max"), ["line", "error"])
    for name in ["down", "up"]:
        causes = causes.append_column(f"{name}_squared", squared_width(causes, name))
    causes = total(causes, ["line"], down="down_squared", up="up_squared")
    unknown = total(table.filter(pc.invert(table["is_known"])), ["line"], down_unknown="down", up_unknown="up")
    both = distinct(table, "line", []).join(causes, "line").join(unknown, "line")
    answer = {"line": both["line"]}
    for name in ["down", "up"]:
        squares = pc.sqrt(pc.fill_null(both[name], 0.0))
        answer[name] = pc.add(squares, pc.fill_null(both[f"{name}_unknown"], 0.0))
    return pa.table(answer)


def _events(table: pa.Table) -> pa.Table:
    """The sum of each event, and what of it some tenant may have caused, and not nobody."""
    whole = total(table, ["what"], whole="value")
    is_nobody = pc.fill_null(pc.equal(table["owner"], "unattributed"), False)
    events = whole.join(total(table.filter(is_nobody), ["what"], unattributed="value"), "what")
    return events.append_column("of_somebody", of_somebody(events["whole"], events["unattributed"]))


def _known(table: pa.Table) -> pa.Table:
    """Time of each event that windows with a value cover, seconds."""
    windows = table.group_by(["what", "counter", "mono_ns", "window_ns"]).aggregate([("total", "max")])
    begin = pc.subtract(windows["mono_ns"], windows["window_ns"])
    windows = windows.append_column("begin_ns", begin)
    windows = windows.sort_by([("what", "ascending"), ("begin_ns", "ascending"), ("mono_ns", "ascending")])
    numbers, seconds = [], []
    for number in windows["what"].unique().to_pylist():
        own = windows.filter(pc.equal(windows["what"], number)).combine_chunks()
        end, begin = own["mono_ns"].combine_chunks(), own["begin_ns"].combine_chunks()
        # Windows overlap: counters of an event cover the same time.
        before = pa.concat_arrays([begin[:1], pc.cumulative_max(end)[:-1]])
        covered = pc.sum(pc.max_element_wise(pc.subtract(end, pc.max_element_wise(begin, before)), 0)).as_py()
        length = pc.sum(own["window_ns"]).as_py()
        valued = pc.sum(pc.if_else(pc.is_valid(own["total_max"]), own["window_ns"], 0)).as_py()
        numbers.append(number)
        seconds.append(covered / 1e9 * valued / length)
    return pa.table({"what": pa.array(numbers, pa.int64()), "known_s": pa.array(seconds, pa.float64())})
