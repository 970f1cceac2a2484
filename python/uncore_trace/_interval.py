"""The 90 % interval of a sum of shares, as `report` computes it.

The only implementation in Python; docs/reading.md (The 90 % interval) has the rules and
`uncore-trace/src/view/interval.rs` the reasons.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

#: A confidence is the probability that a share is within this fraction of the truth.
RIGHT_WITHIN = 0.1
#: Probability that the truth is in the interval.
LEVEL = 0.9
#: Recorded confidences are in hundredths.
LEAST_CONFIDENCE = 0.01
#: For how long errors that do not last are alike, ns.
CORRELATION_NS = 2e9
#: The prior of the part of an event that no owner causes: its median, and the standard deviation of its logarithm.
BASELINE_MEDIAN = 0.05
BASELINE_LOG_SD = 1.0
#: Any of these may have caused what is unattributed beyond that.
TENANTS = ["task", "other_tasks"]
#: Lines by one of these columns divide cgroups.
_PROCESS = frozenset(["pid", "comm"])


def half_width(confidence: pa.ChunkedArray) -> pa.ChunkedArray:
    """Half width of a row's interval as a fraction of its value; null: from 0 to the total of the window."""
    sure = pc.cast(confidence, pa.float64())
    sure = pc.if_else(pc.and_(pc.greater(sure, 0.0), pc.is_finite(sure)), sure, None)
    # atanh(1) is infinite: the width is 0.
    sure = pc.min_element_wise(sure, 1.0, skip_nulls=False)
    twice = pc.subtract(pc.log1p(sure), pc.log1p(pc.negate(sure)))
    return pc.divide(RIGHT_WITHIN * 2 * math.atanh(LEVEL), twice)


def divides_cgroups(names: Sequence[str]) -> bool:
    """Whether lines by these columns divide cgroups."""
    return not _PROCESS.isdisjoint(names)


def caused(rows: pa.Table, is_divided: bool) -> pa.Table:
    """The rows with `cause`, which together with the socket says which errors are the same, and `lasting`, the
    confidence that half widths are made of.

    If lines divide cgroups, these are the program and its confidence, else the cgroup and that of its sum.
    """
    if is_divided:
        cause, lasting = rows["comm"], rows["confidence"]
    else:
        is_named = pc.not_equal(rows["owner"], "task")
        cause = pc.coalesce(rows["cgroup"], pc.if_else(is_named, rows["comm"], None))
        lasting = pc.coalesce(rows["cgroup_confidence"], rows["confidence"])
    return rows.append_column("cause", pc.fill_null(cause, "")).append_column("lasting", lasting)


def reaches(rows: pa.Table) -> pa.Table:
    """The rows with `down` and `up`, the distances to both ends of each one's interval, and `is_known`.

    These are of errors that last; `all_down` and `all_up` are of all errors. Rows that are not known reach 0: their errors
    are shared, whatever their cause.
    """
    share = pc.max_element_wise(rows["value"], 0.0, skip_nulls=False)
    room = pc.max_element_wise(pc.subtract(rows["total"], share), 0.0, skip_nulls=False)
    width = half_width(rows["lasting"])
    far = pc.multiply(share, width)
    known = pc.fill_null(pc.less(width, 1.0), False)
    down, up = pc.min_element_wise(far, share), pc.min_element_wise(far, room)
    has_own = pc.is_valid(rows["confidence"])
    own = pc.max_element_wise(pc.cast(rows["confidence"], pa.float64()), LEAST_CONFIDENCE, skip_nulls=False)
    own = pc.multiply(share, half_width(own))
    added = {
        "share": share,
        "down": down,
        "up": up,
        "all_down": pc.if_else(has_own, pc.min_element_wise(own, share), down),
        "all_up": pc.if_else(has_own, pc.min_element_wise(own, room), up),
        "is_known": known,
    }
    for name, column in added.items():
        rows = rows.append_column(name, column)
    return rows


def squared_width(causes: pa.Table, name: str) -> pa.ChunkedArray:
    """Squares of the distances of sums of rows with one cause, which are in windows of `windows_ns`.

    What all errors have beyond those that last is alike for some time, and independent over more.
    """
    lasting = pc.multiply(causes[name], causes[name])
    whole = pc.multiply(causes[f"all_{name}"], causes[f"all_{name}"])
    spans = pc.max_element_wise(pc.divide(pc.cast(causes["windows_ns"], pa.float64()), CORRELATION_NS), 1.0)
    return pc.add(lasting, pc.divide(pc.max_element_wise(pc.subtract(whole, lasting), 0.0), spans))


def of_somebody(whole: pa.ChunkedArray, unattributed: pa.ChunkedArray) -> pa.ChunkedArray:
    """What of the unattributed part of events some tenant may have caused, and not nobody."""
    of_nobody = pc.multiply(whole, BASELINE_MEDIAN * math.exp(BASELINE_LOG_SD))
    return pc.max_element_wise(pc.subtract(pc.fill_null(unattributed, 0.0), of_nobody), 0.0)


def ends(value: pa.ChunkedArray, down: pa.ChunkedArray, up: pa.ChunkedArray, most: pa.ChunkedArray) -> tuple[Any, Any]:
    """Low and high of sums: not below 0, and not above the total of the windows with rows."""
    low = pc.min_element_wise(pc.max_element_wise(pc.subtract(value, down), 0.0), value)
    high = pc.max_element_wise(pc.min_element_wise(pc.add(value, up), most), value)
    return low, high
