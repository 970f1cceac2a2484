"""Tables of a recording."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def read(
    path: str | os.PathLike[str], table: str = "fabric", columns: Sequence[str] | None = None
) -> pa.Table:
    """A table of a recording, with all of its columns or with these.

    `path` is a recording: a file, which has the table `fabric` alone, or a directory with a file for each table.
    Dictionaries are read as plain strings: pandas would make categories of them.

    Raises `FileNotFoundError` if the recording has no such table.
    """
    file = Path(path)
    if file.is_dir():
        file = file / f"{table}.parquet"
    elif table != "fabric":
        raise FileNotFoundError(f"{file} has the table fabric alone, not {table}: record into a directory")
    return plain(pq.read_table(file, columns=None if columns is None else list(columns)))


def plain(rows: Any) -> pa.Table:
    """Rows as a table without dictionaries."""
    table = rows if isinstance(rows, pa.Table) else pa.table(rows)
    fields = [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields, metadata=table.schema.metadata))
