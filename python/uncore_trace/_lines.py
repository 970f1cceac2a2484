"""What sums and windows share: the lines that rows belong to.

Acero, the engine of `pyarrow.Table.join`, matches no nulls, and a line may have one (an interrupt has no cgroup). So each
line gets a number, and joins are by numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ._read import plain

#: What is counted. No column of it is null.
EVENT = ["event", "filter", "unit"]


def rows_of(
    rows: Any, by: str | Sequence[str], columns: Sequence[str], later: str | None = None
) -> tuple[pa.Table, list[str]]:
    """The columns that are needed, and the names of those of `by`. The column `later` is null where rows lack it."""
    names = [by] if isinstance(by, str) else list(by)
    table = plain(rows)
    if later is not None:
        if later not in table.column_names:
            table = table.append_column(later, pa.nulls(len(table), pa.float32()))
        columns = [*columns, later]
    if "known_ns" in table.column_names and "counter" not in table.column_names:
        raise ValueError("rows of a roll-up have an interval of their own: sum low and high as queries/bill.sql does")
    missing = [name for name in [*names, *columns] if name not in table.column_names]
    if missing:
        raise ValueError(f"the rows have no column {', '.join(missing)}: read fabric with it")
    # Lines have these anyway.
    names = [name for name in names if name not in [*EVENT, "owner"]]
    return table.select(list(dict.fromkeys([*EVENT, "owner", *names, *columns]))), names


def numbered(table: pa.Table, columns: Sequence[str], name: str) -> pa.Table:
    """The table with a column `name`: a number for each combination of values, nulls included."""
    number = pa.repeat(pa.scalar(0, pa.int64()), len(table))
    for column in columns:
        codes = pc.dictionary_encode(table[column], null_encoding="encode").combine_chunks()
        indices = codes.indices.cast(pa.int64())
        pair = pc.add(pc.multiply(number, len(codes.dictionary) + 1), indices)
        # Numbered again, so that products stay small.
        number = pc.dictionary_encode(pair).indices.cast(pa.int64())
    return table.append_column(name, number)


def distinct(table: pa.Table, number: str, columns: Sequence[str]) -> pa.Table:
    """The values of columns that are the same for each number."""
    found = table.select([number, *columns]).group_by(number).aggregate([(name, "one") for name in columns])
    return found.rename_columns([name.removesuffix("_one") for name in found.column_names])


def total(table: pa.Table, keys: Sequence[str], **sums: str) -> pa.Table:
    """Sums by keys; `NAME=COLUMN`. The sum of nulls alone is null."""
    options = pc.ScalarAggregateOptions(min_count=1)
    found = table.group_by(list(keys)).aggregate([(column, "sum", options) for column in sums.values()])
    return found.select([*keys, *(f"{column}_sum" for column in sums.values())]).rename_columns([*keys, *sums])
