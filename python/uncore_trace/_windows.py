"""Windows, with those in which an owner had nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ._lines import EVENT, distinct, numbered, rows_of, total

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = ["ts", "mono_ns", "window_ns", "value", "total"]


class Windows:
    """A `pyarrow.Table` that can also be drawn: it has all attributes of `table`."""

    def __init__(self, table: pa.Table, rows: Any, by: str | Sequence[str]) -> None:
        """`rows` and `by` are those of which the table was made."""
        self.table, self._rows, self._by = table, rows, by

    def plot(self, ax: Axes | None = None, top: int = 5) -> Figure:
        """Draws who had each event over time, one plot below the other; `ax` takes that of one event.

        There is a line for each of the `top` largest lines of the table, for `other`, which is the sum of the rest, for
        `unattributed`, and for the total. Bands are 90 % intervals: those of `sums` of the windows that are drawn as one
        step. Where no window has a value, or there is none, lines are interrupted.

        Raises `ImportError` without matplotlib.
        """
        from ._plot import draw

        return draw(self._rows, self._by, ax, top)

    def __getattr__(self, name: str) -> Any:
        if name == "table":  # It is being copied.
            raise AttributeError(name)
        return getattr(self.table, name)

    def __getitem__(self, key: Any) -> Any:
        return self.table[key]

    def __len__(self) -> int:
        return len(self.table)

    def __repr__(self) -> str:
        return repr(self.table)


def windows(rows: Any, by: str | Sequence[str] = "cgroup") -> Windows:
    """One row for each event, each owner and values of `by` that have something of it, and each moment at which windows end.

    `fabric` has no row of an owner in a window in which it had nothing, so quantiles of its rows leave these windows
    out. Here they are, with 0. `rows` are of `fabric`, of one boot of one host, of any time and events, and of all
    owners. Columns of the result:

    ================================ ============================================================================
    `event`, `filter`, `unit`        what was counted
    `owner`, and the columns of `by` who had it
    `ts`, `mono_ns`                  the moment: UTC, and `CLOCK_MONOTONIC` in ns
    `window_ns`                      length of the longest of these windows, ns
    `value`                          sum of the windows, in `unit`; null: one of them has no value
    `per_s`                          sum of their rates, in `unit` a second
    ================================ ============================================================================

    Rows are in the order of these columns. `windows(rows).plot()` draws them with matplotlib.
    """
    table, names = rows_of(rows, by, _COLUMNS)
    table = numbered(numbered(table, EVENT, "what"), ["what", "owner", *names], "line")
    rate = pc.divide(pc.multiply(table["value"], 1e9), pc.cast(table["window_ns"], pa.float64()))
    table = table.append_column("rate", rate)
    table = table.append_column("is_known", pc.is_valid(table["total"]))
    moments = table.group_by(["what", "mono_ns"]).aggregate([("ts", "one"), ("window_ns", "max"), ("is_known", "all")])
    had_some = table.filter(pc.not_equal(table["value"], 0.0))
    lines = distinct(had_some, "line", ["what", *EVENT, "owner", *names])
    had = total(table, ["line", "mono_ns"], value="value", per_s="rate")
    dense = lines.join(moments, "what", join_type="inner").join(had, ["line", "mono_ns"])
    answer = {name: dense[name] for name in [*EVENT, "owner", *names]} | {
        "ts": dense["ts_one"],
        "mono_ns": dense["mono_ns"],
        "window_ns": dense["window_ns_max"],
    }
    for name in ["value", "per_s"]:
        answer[name] = pc.if_else(dense["is_known_all"], pc.fill_null(dense[name], 0.0), None)
    order = [(name, "ascending") for name in [*EVENT, "owner", *names, "mono_ns"]]
    return Windows(pa.table(answer).sort_by(order), rows, by)
