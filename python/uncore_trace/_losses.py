"""What a recording lacks in a span of time. The causes are those of docs/tables.md; a test compares them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ._text import printable

#: What to do about each cause; empty: it costs precision only, and no count is missing.
ADVICE = dict.fromkeys(
    "late_tick no_boundary nested_reading unseen_switch unseen_request cpu_offline witness_lost monitor_lost overload"
    " mark_lost name_refused holder_unseen account_unread cgroups_unnamed cgroups_partial".split(),
    "",
)
ADVICE |= dict.fromkeys(["ring_full", "run_gap", "lost_sample"], "use a larger --buffer")
ADVICE |= dict.fromkeys(
    ["read_failed", "disorder", "io_unseen"], "record into a directory (-o DIR/) and see `detail` in its table loss"
)
ADVICE |= {
    "not_scheduled": "record fewer events at a time",
    "not_opened": "leave out the events that cannot be opened",
    "undecodable": "build uncore-trace again: its BPF programs are of another version",
    "timer_stopped": "use --timer run-on-cpu",
    "reader_offline": "keep all CPUs online while recording",
    "counter_stopped": "keep all CPUs online, and the drivers of PMUs loaded and bound, while recording",
    "cpu_not_planned": "bring all CPUs online before recording",
    "slices_dropped": "record without --slices, or to a faster disk; only the table slices lacks rows",
    "unfinished": "record again on a less busy machine",
}
#: What is missing from then on, and not only before the row's time.
_LASTING = frozenset(["not_opened", "timer_stopped", "counter_stopped", "cpu_not_planned"])


def losses(
    facts: Mapping[str, str], rows: Iterable[Mapping[str, Any]] | None, start: int, begin: int, end: int
) -> dict[str, Any]:
    """The losses that may affect the time from `begin` to `end`, ns, by cause; seconds are after `start`.

    `rows` are those of the table `loss`; None: a single file, whose metadata have totals and the begin of the first.
    """
    totals, firsts = (json.loads(facts.get(name, "{}")) for name in ["loss", "loss_first"])
    is_known = rows is not None or "loss" in facts
    if rows is None:
        # When the last was is not known.
        spans = [(cause, count, firsts.get(cause, begin), end, None) for cause, count in totals.items()]
    else:
        spans = [(r["cause"], r["count"], r["mono_ns"] - r["span_ns"], r["mono_ns"], r["detail"]) for r in rows]
    found: dict[str, dict[str, Any]] = {}
    for cause, count, first, last, detail in sorted(spans, key=lambda loss: loss[2]):
        if count > 0 and first <= end and (last >= begin or cause in _LASTING):
            # A cause that this version does not know costs counts.
            advice = ADVICE.get(cause, "run `uncore-trace check`")
            loss = {"cause": printable(cause), "count": 0, "first_s": (first - start) / 1e9, "detail": None}
            loss |= {"costs": "counts" if advice else "precision", "what_to_do": advice or None}
            loss = found.setdefault(cause, loss)
            loss["count"] += count
            loss["detail"] = loss["detail"] or (detail and printable(detail))
    killed, pieces = facts.get("repaired") == "true", int(facts.get("left_out", 0))
    is_whole = facts.get("complete") == "true" and not (killed or pieces)
    # What costs counts may be at another time. If nothing says what is missing, it may be missing anywhere.
    is_elsewhere = not (killed or pieces) and any(ADVICE.get(cause, "?") and totals[cause] > 0 for cause in totals)
    has_all = is_known and (is_whole or is_elsewhere) and all(loss["costs"] == "precision" for loss in found.values())
    told: dict[str, Any] = {"recording_is_complete": is_whole, "span_is_complete": has_all}
    told |= {"recorder_was_killed": killed, "damaged_pieces_left_out": pieces}
    told |= {"are_known": is_known, "times_are_known": rows is not None}
    return told | {"in_span": sorted(found.values(), key=lambda loss: -loss["count"])}
