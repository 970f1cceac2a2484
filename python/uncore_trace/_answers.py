"""The questions that assistants ask, with the numbers of `uncore-trace report`.

Every answer has its span and its losses, and each share its unit, 90 % interval, confidence and methods. A share whose
confidence is below `least` is refused: the interval is said, and not the value.
"""

from __future__ import annotations

import math
import shlex
from bisect import bisect_right
from collections.abc import Iterable
from fnmatch import fnmatchcase
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from ._lines import EVENT
from ._recording import Recording, Refused, within
from ._sums import sums
from ._text import printable
from ._windows import windows

By = Literal["cgroup", "container", "pod", "job", "comm", "owner"]
#: What helps against a low confidence; docs/attribution.md has the reasons.
_WITNESS = (
    "record with a witness (`record --method misses`, or `--witness ports`), with `--monitor` where the machine has"
    " resctrl, or for longer"
)
_ADVICE = dict.fromkeys(["residency", "regression", "misses", "ports"], _WITNESS)
_OTHER = "docs/attribution.md says when this method is wrong; `record --cause` says who causes counts of unknown cause"
#: Events and tenants of an answer; `event` and `span` ask for less.
_MOST = 40
_ABSENT: dict[str, Any] = {"value": 0.0, "low": 0.0, "high": 0.0, "per_s": 0.0, "confidence": None, "methods": [], "refused": None}


class Answers:
    """Answers from recordings below `root`."""

    def __init__(self, root: Path, least: float) -> None:
        self.root, self.least = root.resolve(), least

    def who_filled(
        self,
        recording: str = ".",
        link: str = "*",
        at: str = "",
        span: str = "",
        seconds: float = 1.0,
        by: By = "cgroup",
        top: int = 5,
    ) -> dict[str, Any]:
        """Which tenants filled a link or memory: in a span, in the `seconds` around a time `at`, or in the busiest.

        `link` is a name such as `memory 0` or `memory 0 in`, `*` for any text; of several the fullest is taken.
        """
        rec = Recording(self.root, recording)
        if not rec.on:
            raise Refused(f"{rec.name} has no links: ask top_tenants")
        asked, length = rec.span(span), int(seconds * 1e9) if 0.0 < seconds < 1e9 else 10**9
        if at:
            middle = rec.moment(at)
            asked = max(middle - length // 2, rec.start), min(middle + length - length // 2, rec.end)
        rows = rec.by_link(_matching(rec, rec.of(asked), link, events=False))
        ways = self._summed(rec, rows, by, 1)
        ways.sort(key=lambda way: (-(way["of_peak"] or -1.0), -(way["per_s"] or 0.0)))
        if not ways:
            return self._answer(rec, asked, by, link, []) | {"link": None}
        name = ways[0]["link"]
        way = next(way for way in rec.on.values() if printable(" ".join(way)) == name)
        if not (at or span):
            is_way = pc.and_(pc.equal(rows["event"], way[0]), pc.equal(rows["filter"], way[1]))
            asked = _busiest(rows.filter(is_way), length, asked)
        found = self._summed(rec, rec.by_link(rec.of(asked)), by, top)
        answer = self._answer(rec, asked, by, " ".join(way), [its for its in found if its["link"] == name])
        return answer | {"is_busiest": not (at or span), "other_links_with_traffic": [it["link"] for it in ways[1:13]]}

    def top_tenants(
        self, recording: str = ".", event: str = "*", span: str = "", by: By = "cgroup", top: int = 10
    ) -> dict[str, Any]:
        """Who had most of each event. `event` is its name or that of a link, `*` for any text."""
        rec = Recording(self.root, recording)
        asked = rec.span(span)
        events = self._summed(rec, _matching(rec, rec.of(asked), event), by, top)
        return self._answer(rec, asked, by, event, events)

    def bill(
        self, tenant: str, recording: str = ".", event: str = "*", span: str = "", by: By = "cgroup"
    ) -> dict[str, Any]:
        """What one tenant had of each event, with the interval; `tenant` is as an answer names it."""
        rec = Recording(self.root, recording)
        asked = rec.span(span)
        events = self._summed(rec, _matching(rec, rec.of(asked), event), by, None)
        names = dict.fromkeys(line["tenant"] for its in events for line in its["tenants"])
        for its in events:
            its["tenants"] = [line for line in its["tenants"] if line["tenant"] == printable(tenant)]
            its["what_to_do"] = _advice(its["tenants"])
        events = [its for its in events if its["tenants"]]
        if not events:
            raise Refused(f"{printable(tenant)} had nothing of it: there are {', '.join(list(names)[:12]) or 'none'}")
        note = "the same traffic may be in two events: add them only if they are of different links"
        return self._answer(rec, asked, by, event, events) | {"note": note}

    def compare(
        self,
        recording: str = ".",
        other: str = "",
        before: str = "",
        after: str = "",
        event: str = "*",
        by: By = "cgroup",
        top: int = 10,
    ) -> dict[str, Any]:
        """Rates of tenants in two recordings, `recording` and `other`, or in two spans of one, `before` and `after`."""
        if not (other or before or after):
            raise Refused("name another recording, or two spans: before and after")
        first = Recording(self.root, recording)
        sides, answers = [], []
        for rec, span in [(first, before), (Recording(self.root, other) if other else first, after)]:
            asked = rec.span(span)
            events = self._summed(rec, _matching(rec, rec.of(asked), event), by, None, with_empty=True)
            sides.append({its["event"]: its for its in events})
            answers.append(self._answer(rec, asked, by, event, None))
        changed = []
        for name in sorted(sides[0].keys() & sides[1].keys()):
            both = [side[name] for side in sides]
            lines = [{(line["owner"], line["tenant"]): line for line in its["tenants"]} for its in both]
            keys = sorted(lines[0].keys() | lines[1].keys())
            if not keys:
                continue
            changes = [_change(both, [side.get(key, _ABSENT) for side in lines], key) for key in keys]
            # What is certain first.
            changes.sort(key=lambda it: (it["verdict"] not in ("more", "less"), -abs(sum(it["difference_per_s"]))))
            totals = {"before_per_s": both[0]["per_s"], "after_per_s": both[1]["per_s"]}
            kept = changes[: _most(top)]
            shown = {"changes": kept, "tenants_left_out": len(changes) - len(kept)}
            advice = sorted({text for its in both for text in its["what_to_do"]})
            changed.append({"event": name, "unit": both[0]["unit"]} | totals | shown | {"what_to_do": advice})
        note = "this says what moved; `uncore-trace diff` also weighs how much each rate varies by itself"
        told: dict[str, Any] = {"before": answers[0], "after": answers[1], "events": changed[:_MOST], "note": note}
        told["events_left_out"] = len(changed) - len(told["events"])
        return told | {"not_counted_in_both": sorted(sides[0].keys() ^ sides[1].keys())}

    def what_was_lost(self, recording: str = ".", span: str = "") -> dict[str, Any]:
        """What a recording lacks in a span: losses by cause, what they cost, and what to do about them."""
        rec = Recording(self.root, recording)
        asked = rec.span(span)
        rec.of(asked)
        return rec.about(asked) | {"command": shlex.join(["uncore-trace", "check", rec.name])}

    def _answer(
        self, rec: Recording, span: tuple[int, int], by: str, event: str, events: list[dict[str, Any]] | None
    ) -> dict[str, Any]:
        """What every answer has; `command` prints the same numbers."""
        command = ["uncore-trace", "report", rec.name, "--by", by]
        command += [] if event == "*" else ["--event", printable(event)]
        if span != (rec.start, rec.end):
            command += ["--from", f"{span[0] - rec.start}ns", "--to", f"{span[1] - rec.start}ns"]
        told = rec.about(span) | {"interval": "90 %", "least_confidence": self.least, "by": by}
        told |= {"command": shlex.join(command)}
        if events is None:
            return told
        is_refused = all(line["refused"] for its in events for line in its["tenants"])
        why = "no share is sure enough: see refused and what_to_do" if events else "nothing was counted in this time"
        told |= {"refused": why if is_refused else None, "events": events[:_MOST]}
        return told | {"events_left_out": max(len(events) - _MOST, 0)}

    def _summed(
        self, rec: Recording, rows: pa.Table, by: str, top: int | None, with_empty: bool = False
    ) -> list[dict[str, Any]]:
        """Each event, or link and direction, with its tenants, the largest first."""
        names = [] if by == "owner" else [by]
        if names and by not in rows.column_names:
            raise Refused(f"{rec.name} has no column {by}: ask by cgroup")
        key = [*EVENT, "owner", *names]
        used = rows.group_by(key).aggregate([("method", "distinct")]).to_pylist()
        methods = {tuple(line[name] for name in key): sorted(line["method_distinct"]) for line in used}
        found: dict[tuple[str, ...], list[dict[str, Any]]] = {}
        for line in sums(rows, names).to_pylist():
            line["methods"] = methods.get(tuple(line[name] for name in key), [])
            found.setdefault(tuple(line[name] for name in EVENT), []).append(line)
        rates = {what: _rate(lines) for what, lines in found.items()}
        answer = []
        for what, lines in found.items():
            event, filter_, unit = what
            total = sum(line["value"] or 0.0 for line in lines)
            known_s = lines[0]["known_s"]
            # The interval of 0 may be wide.
            lines = [line for line in lines if line["value"] or (with_empty and line["high"])]
            if not (total or with_empty):
                continue
            its: dict[str, Any] = {"event": printable(f"{event}[{filter_}]" if filter_ else event)}
            if event in rec.links:
                peak, both = rec.peak(event, filter_), [rate or 0.0 for of, rate in rates.items() if of[0] == event]
                rate = sum(both) if peak and peak["direction"] == "both" else rates[what]
                its = {"link": printable(f"{event} {filter_}"), "peak": peak}
                its["of_peak"] = rate / peak["bytes_per_s"] if peak and rate is not None else None
            its |= {"unit": printable(unit), "total": total, "known_s": known_s, "per_s": rates[what]}
            kept = lines[: None if top is None else _most(top)]
            its["tenants"] = [self._line(line, by, total) for line in kept]
            answer.append(its | {"tenants_left_out": len(lines) - len(kept), "what_to_do": _advice(its["tenants"])})
        return answer

    def _line(self, line: dict[str, Any], by: str, total: float) -> dict[str, Any]:
        """A tenant; what is not finite is not known."""
        sure = line["confidence"]
        name = line.get(by) or (f"(no {by})" if line["owner"] == "task" else line["owner"])
        shown = {"tenant": printable(name), "owner": line["owner"]}
        shown |= {name: line[name] for name in ["value", "low", "high", "per_s", "confidence", "methods"]}
        shown["share"] = line["value"] / total if line["value"] is not None and total else None
        shown = {name: None if isinstance(it, float) and not math.isfinite(it) else it for name, it in shown.items()}
        if shown["confidence"] is None or sure < self.least:
            less = "there is no confidence" if sure is None else f"the confidence {sure:.3g} is below {self.least:g}"
            return shown | {"value": None, "per_s": None, "share": None, "refused": less}
        return shown | {"refused": None}


def _change(both: list[dict[str, Any]], lines: list[dict[str, Any]], key: tuple[str, str]) -> dict[str, Any]:
    """Rates differ if their intervals do not overlap, as in `diff`; a tenant without a line had nothing."""
    shown: dict[str, Any] = {"tenant": key[1], "owner": key[0]}
    for side, its, line in zip(["before", "after"], both, lines):
        # Without a confidence it is anything from nothing to all.
        ends = [line["low"] or 0.0, its["total"] if line["high"] is None else line["high"]]
        ends = [end / its["known_s"] if its["known_s"] else 0.0 for end in ends]
        shown[side] = {name: line[name] for name in ["per_s", "confidence", "methods"]}
        shown[side] |= {"low_per_s": ends[0], "high_per_s": ends[1]}
    low = shown["after"]["low_per_s"] - shown["before"]["high_per_s"]
    high = shown["after"]["high_per_s"] - shown["before"]["low_per_s"]
    refused = None if all(its["known_s"] for its in both) else "of one of the two no window has a value"
    refused = refused or lines[0]["refused"] or lines[1]["refused"]
    verdict = "more" if low > 0.0 else "less" if high < 0.0 else "within error"
    return shown | {"difference_per_s": [low, high], "verdict": None if refused else verdict, "refused": refused}


def _advice(lines: Iterable[dict[str, Any]]) -> list[str]:
    """What to do about the refused lines."""
    methods = {method for line in lines if line["refused"] for method in line["methods"] or [""]}
    return sorted({_ADVICE.get(method, _OTHER) for method in methods})


def _most(top: int) -> int:
    return min(max(top, 1), _MOST)


def _rate(lines: Iterable[dict[str, Any]]) -> float | None:
    """Rate of all owners."""
    rates = [line["per_s"] for line in lines if line["per_s"] is not None]
    return sum(rates) if rates else None


def _matching(rec: Recording, rows: pa.Table, pattern: str, events: bool = True) -> pa.Table:
    """The rows of links, and of events, of this name."""
    wanted: list[int] = []
    names: dict[str, None] = {}
    for row in rows.group_by(["counter", "event", "filter"]).aggregate([]).to_pylist():
        link = rec.on.get(row["counter"], ())
        its = [*link[:1], *([" ".join(link)] if link else [])]
        its += [row["event"], f"{row['event']}[{row['filter']}]"] if events else []
        names |= dict.fromkeys(its)
        if any(name == pattern or fnmatchcase(name, pattern) for name in its) or (pattern == "*" and events):
            wanted.append(row["counter"])
    if not wanted:
        known = ", ".join(map(printable, sorted(names)[:12]))
        raise Refused(f"nothing in {rec.name} is called {printable(pattern)}: there are {known}")
    return rows.filter(pc.is_in(rows["counter"], value_set=pa.array(wanted, pa.int32())))


def _busiest(rows: pa.Table, length: int, span: tuple[int, int]) -> tuple[int, int]:
    """The time of this length, ending with a window, in which most was counted."""
    moments = windows(rows, "owner").group_by("mono_ns").aggregate([("value", "sum")]).sort_by("mono_ns").to_pydict()
    ends, upto = moments["mono_ns"], [0.0, *accumulate(value or 0.0 for value in moments["value_sum"])]
    most = max(range(len(ends)), key=lambda at: upto[at + 1] - upto[bisect_right(ends, ends[at] - length)])
    return max(ends[most] - length, span[0]), ends[most]
