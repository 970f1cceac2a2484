"""Tables of a recording."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ._sound import Damaged, SoundFile

#: In the metadata of `fabric`: the other tables of the recording, with their digests.
_TABLES = b"uncore_trace.tables"


def read(
    path: str | os.PathLike[str],
    table: str = "fabric",
    columns: Sequence[str] | None = None,
    *,
    verify: bool = True,
) -> pa.Table:
    """A table of a recording, with all of its columns or with these.

    `path` is a recording or a part of a rotated one: a file, which has the table `fabric` alone, or a directory with a
    file for each table; or a file of a roll-up. Dictionaries are read as plain strings: pandas would make categories of
    them.

    With `verify`, the whole file is read and compared with its digests first, as the program does.

    Raises `FileNotFoundError` if the recording has no such table, and `Damaged` if it is not what was recorded.
    """
    file = Path(path)
    fabric = None
    if file.is_dir():
        fabric = file / "fabric.parquet" if table != "fabric" else None
        file = file / f"{table}.parquet"
    elif table != "fabric":
        raise FileNotFoundError(f"{file} has the table fabric alone, not {table}: record into a directory")
    with pa.OSFile(os.fspath(file)) as source:
        if not verify:
            return select(pq.ParquetFile(source), columns)
        sound = SoundFile(source, str(file))
        if fabric is not None and fabric.exists():
            with pa.OSFile(os.fspath(fabric)) as listing:
                metadata = SoundFile(listing, str(fabric)).file.metadata.metadata
            require_listed(sound, table, json.loads((metadata or {}).get(_TABLES, "{}")), str(file))
        sound.verify_row_groups()
        return select(sound.file, columns)


def require_listed(sound: SoundFile, table: str, digests: dict[str, str | None], name: str) -> None:
    """Raises `Damaged` if the recording lists another digest of this table than its file has.

    Without a digest in the list, the table was not finished when the list was written, and may be any.
    """
    if (digests.get(table) or sound.digest) != sound.digest:
        raise Damaged(f"{name} is of another recording")


def select(file: pq.ParquetFile, columns: Sequence[str] | None) -> pa.Table:
    """The rows of a file, with all of its columns or with these, in this order."""
    if columns is None:
        return plain(file.read())
    absent = set(columns).difference(file.schema_arrow.names)
    if absent:
        raise KeyError(f"there is no column {sorted(absent)[0]}")
    return plain(file.read(columns=list(columns)).select(list(columns)))


def plain(rows: Any) -> pa.Table:
    """Rows as a table without dictionaries."""
    # Polars' own conversion gives strings of a type that every pyarrow has.
    rows = rows.to_arrow() if hasattr(rows, "to_arrow") else rows
    table = rows if isinstance(rows, pa.Table) else pa.table(rows)
    fields = [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields, metadata=table.schema.metadata))
