"""Plots of who had an event over time, with matplotlib, which is imported only here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from ._interval import divides_cgroups
from ._lines import EVENT, distinct, numbered, rows_of, total
from ._sums import COLUMNS, LATER, summed
from ._text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Most steps of a line: more would not be seen.
_STEPS = 120
#: Most characters of a name in the legend.
_NAME = 40
_DECIMAL = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")]
_TIME = [(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")]
_OTHER, _UNATTRIBUTED = -1, -2
_COLORS = {_OTHER: "0.45", _UNATTRIBUTED: "0.7"}


@dataclass
class Line:
    """Rates in each step; NaN: not known. `low` and `high` are empty if there is no interval."""

    name: str
    color: str
    rate: list[float]
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)


@dataclass
class Plot:
    """An event; `spans` has begin and end of each step, UTC in ns."""

    title: str
    unit: str
    spans: list[tuple[int, int]]
    lines: list[Line]
    total: list[float]


def draw(rows: Any, by: str | Sequence[str], ax: Axes | None, top: int) -> Figure:
    """See `Windows.plot`."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install matplotlib") from error
    plots = plots_of(rows, by, top)
    if not plots:
        raise ValueError("there is nothing to draw: nothing was counted in these rows")
    if ax is None:
        size = (10.0, 1.0 + 2.5 * len(plots))
        figure, grid = pyplot.subplots(len(plots), squeeze=False, sharex=True, figsize=size, layout="constrained")
        axes = list(grid[:, 0])
    elif len(plots) == 1:
        axes = [ax]
    else:
        raise ValueError(f"ax takes the plot of one event, not of {len(plots)}: select its rows before windows")
    for own, plot in zip(axes, plots):
        _paint(own, plot)
    axes[-1].set_xlabel("UTC")
    return cast("Figure", axes[0].figure)


def plots_of(rows: Any, by: str | Sequence[str], top: int) -> list[Plot]:
    """The plot of each event of which there was something."""
    table, names = rows_of(rows, by, ["ts", *COLUMNS], LATER)
    table = numbered(table, EVENT, "event_number")
    some = table.filter(pc.greater(table["value"], 0.0))["event_number"].unique()
    plots = [_plot(table.filter(pc.equal(table["event_number"], number)), names, top) for number in some]
    return sorted(plots, key=lambda plot: plot.title)


def _plot(table: pa.Table, names: Sequence[str], top: int) -> Plot:
    event, filter_, unit = (table[name][0].as_py() for name in EVENT)
    table, labels = _labelled(table, names, top)
    table, spans = _in_steps(table)
    found: dict[int, dict[int, dict[str, Any]]] = {}
    for row in summed(table, ["label"], divides_cgroups(names)).to_pylist():
        found.setdefault(row["label"], {})[int(row["filter"])] = row
    known = [0.0] * len(spans)
    for steps in found.values():
        for step, row in steps.items():
            known[step] = row["known_s"]
    nothing = dict.fromkeys(["value", "low", "high"], 0.0)

    def rates(steps: dict[int, dict[str, Any]], name: str) -> list[float]:
        values = [steps.get(step, nothing)[name] for step in range(len(spans))]
        return [math.nan if v is None or not s else v / s for v, s in zip(values, known)]

    lines, whole = [], [0.0] * len(spans)
    for label, name in labels.items():
        steps = found.get(label, {})
        line = Line(name, _COLORS.get(label, f"C{label}"), rates(steps, "value"))
        if label != _UNATTRIBUTED:
            line.low, line.high = rates(steps, "low"), rates(steps, "high")
        whole = [a + b for a, b in zip(whole, line.rate)]
        if any(rate > 0.0 for rate in line.rate):
            lines.append(line)
    return Plot(f"{event}[{filter_}]" if filter_ else event, unit, spans, lines, whole)


def _labelled(table: pa.Table, names: Sequence[str], top: int) -> tuple[pa.Table, dict[int, str]]:
    """The rows with a `label` for each of the largest lines, one for all others and one for `unattributed`; and names."""
    table = numbered(table, ["owner", *names], "line")
    sums = distinct(table, "line", ["owner", *names]).join(total(table, ["line"], value="value"), "line").to_pylist()
    sums.sort(key=lambda line: (-(line["value"] or 0.0), line["line"]))
    labels: dict[int, str] = {}
    of_line = [_OTHER] * len(sums)
    for line in sums:
        if line["owner"] == "unattributed":
            of_line[line["line"]] = _UNATTRIBUTED
        elif len(labels) < top and line["value"]:
            of_line[line["line"]] = len(labels)
            labels[len(labels)] = _name(line, names)
    labels |= {_OTHER: "other", _UNATTRIBUTED: "unattributed"}
    label = pa.array(of_line, pa.int64()).take(table["line"].combine_chunks())
    # Whoever it is: some tenant.
    owner = pc.if_else(pc.equal(label, _OTHER), "other_tasks", table["owner"])
    table = table.set_column(table.column_names.index("owner"), "owner", owner)
    return table.append_column("label", label).drop_columns(["line"]), labels


def _name(line: dict[str, Any], names: Sequence[str]) -> str:
    parts = [str(line[name]) for name in names if line[name] is not None]
    nameless = f"(no {', '.join(names)})" if names and line["owner"] == "task" else line["owner"]
    return ", ".join(parts) or str(nameless)


def _in_steps(table: pa.Table) -> tuple[pa.Table, list[tuple[int, int]]]:
    """The rows with the number of their step as filter, and begin and end of each step.

    So each step is an event of its own to `summed`, with its own time, interval and unattributed part.
    """
    moments = table["mono_ns"].unique()
    moments = moments.take(pc.sort_indices(moments))
    # Whole windows: one is never divided.
    size = math.ceil(len(moments) / _STEPS)
    step = pc.divide(pc.index_in(table["mono_ns"], value_set=moments), size)
    begin = pc.subtract(table["mono_ns"], table["window_ns"])
    bounds = pa.table({"step": step, "begin": begin, "end": table["mono_ns"]}).group_by("step")
    bounds = bounds.aggregate([("begin", "min"), ("end", "max")]).sort_by("step").to_pydict()
    wall = table["ts"][0].cast(pa.timestamp("us", "UTC")).value * 1000 - table["mono_ns"][0].as_py()
    spans, last = [], -math.inf
    for begin, end in zip(bounds["begin_min"], bounds["end_max"]):
        # Windows of one counter may begin before those of another end.
        spans.append((int(max(begin, last)) + wall, end + wall))
        last = end
    return table.set_column(table.column_names.index("filter"), "filter", pc.cast(step, pa.string())), spans


def _paint(ax: Axes, plot: Plot) -> None:
    from matplotlib import dates

    untyped: Any = dates
    most = max((rate for rate in plot.total if rate == rate), default=0.0)
    size, prefix = next((it for it in (_TIME if plot.unit == "ns" else _DECIMAL) if most >= it[0]), (1.0, ""))
    times, places = _corners(plot.spans)

    def scaled(rates: list[float]) -> list[float]:
        return [math.nan if place is None else rates[place] / size for place in places]

    shown = [ax.plot(times, scaled(plot.total), color="black", linewidth=0.8, linestyle=":")[0]]
    for line in plot.lines:
        shown += ax.plot(times, scaled(line.rate), color=line.color, linewidth=1.2)
        if line.low:
            ax.fill_between(times, scaled(line.low), scaled(line.high), color=line.color, alpha=0.2, linewidth=0.0)
    unit = {"bytes": "B", "count": "", "ns": prefix or "ns"}.get(plot.unit, f" {printable(plot.unit)}")
    ax.set_ylabel(f"{'' if plot.unit == 'ns' else prefix}{unit}/s".strip())
    ax.set_ylim(bottom=0.0)
    locator = untyped.AutoDateLocator(tz=timezone.utc)
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(untyped.ConciseDateFormatter(locator, tz=timezone.utc))
    # Names are set later: matplotlib leaves out those that begin with `_`.
    place = {"bbox_to_anchor": (1.0, 1.0), "fontsize": "small"}
    legend = ax.legend(shown, ["line"] * len(shown), loc="upper left", title="with 90 % interval", **place)
    for text, name in zip(legend.get_texts(), ["total", *(line.name for line in plot.lines)]):
        _write(text, name)
    _write(ax.title, plot.title)


def _corners(spans: list[tuple[int, int]]) -> tuple[Any, list[int | None]]:
    """Begin and end of each step with its number; between steps that are apart a moment without one."""
    times: list[int] = []
    places: list[int | None] = []
    for place, (begin, end) in enumerate(spans):
        if times and begin > times[-1]:
            times.append(begin)
            places.append(None)
        times += [begin, end]
        places += [place, place]
    return [datetime.fromtimestamp(ns / 1e9, timezone.utc) for ns in times], places


def _write(text: Any, name: str) -> None:
    """Names of the machine are neither formulas nor TeX."""
    text.set_parse_math(False)
    text.set_usetex(False)
    name = printable(name)
    half = (_NAME - 1) // 2
    text.set_text(name if len(name) <= _NAME else f"{name[:half]}…{name[-half:]}")
