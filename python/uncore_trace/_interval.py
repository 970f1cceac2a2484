"""The 90 % interval of a sum of shares, as `report` computes it.

The only implementation in Python; docs/usage.md (The 90 % interval) has the rules and
`uncore-trace/src/view/interval.rs` the reasons.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

#: A confidence is the probability that a share is within this fraction of the truth.
RIGHT_WITHIN = 0.1
#: Probability that the truth is in the interval.
LEVEL = 0.9
#: Lines by one of these columns divide cgroups.
PROCESS = frozenset(["pid", "comm"])


def half_width(confidence: pa.ChunkedArray) -> pa.ChunkedArray:
    """Half width of a row's interval as a fraction of its value; null: from 0 to the total of the window."""
    sure = pc.cast(confidence, pa.float64())
    sure = pc.if_else(pc.and_(pc.greater(sure, 0.0), pc.is_finite(sure)), sure, None)
    # atanh(1) is infinite: the width is 0.
    sure = pc.min_element_wise(sure, 1.0, skip_nulls=False)
    twice = pc.subtract(pc.log1p(sure), pc.log1p(pc.negate(sure)))
    return pc.divide(RIGHT_WITHIN * 2 * math.atanh(LEVEL), twice)


def caused(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """The rows with `cause`, which together with the socket says which errors are the same, and `lasting`, the
    confidence that half widths are made of.

    If lines divide cgroups, these are the program and its confidence, else the cgroup and that of its sum.
    """
    if PROCESS.intersection(names):
        cause, lasting = rows["comm"], rows["confidence"]
    else:
        is_named = pc.not_equal(rows["owner"], "task")
        cause = pc.coalesce(rows["cgroup"], pc.if_else(is_named, rows["comm"], None))
        lasting = pc.coalesce(rows["cgroup_confidence"], rows["confidence"])
    return rows.append_column("cause", pc.fill_null(cause, "")).append_column("lasting", lasting)


def reaches(rows: pa.Table) -> pa.Table:
    """The rows with `down` and `up`, the distances to both ends of each one's interval, and `is_known`.

    Rows that are not known reach 0: their errors are shared, whatever their cause.
    """
    share = pc.max_element_wise(rows["value"], 0.0, skip_nulls=False)
    room = pc.max_element_wise(pc.subtract(rows["total"], share), 0.0, skip_nulls=False)
    width = half_width(rows["lasting"])
    far = pc.multiply(share, width)
    known = pc.fill_null(pc.less(width, 1.0), False)
    added = {
        "share": share,
        "down": pc.min_element_wise(far, share),
        "up": pc.min_element_wise(far, room),
        "is_known": known,
    }
    for name, column in added.items():
        rows = rows.append_column(name, column)
    return rows


def ends(value: pa.ChunkedArray, down: pa.ChunkedArray, up: pa.ChunkedArray, most: pa.ChunkedArray) -> tuple:
    """Low and high of sums: not below 0, and not above the total of the windows with rows."""
    low = pc.min_element_wise(pc.max_element_wise(pc.subtract(value, down), 0.0), value)
    high = pc.max_element_wise(pc.min_element_wise(pc.add(value, up), most), value)
    return low, high
