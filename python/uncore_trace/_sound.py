"""Verifies the digests of a file of a recording, as the program does (`uncore-trace-recording/src/tables/digest.rs`).

Every byte of a file is covered: the footer by its own digest, and the bytes of each row group by one in the footer.
They protect against faults of disks, memory and copying, and not against who changes a file on purpose.
"""

from __future__ import annotations

import json
import struct

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

#: Largest footer that is read, bytes, as in `uncore-trace-recording/src/bounds.rs`.
_FOOTER = 64 << 20
#: Bytes read at a time.
_CHUNK = 1 << 20
_DIGITS = 16
_PREFIX = b"xxh64:"
_KEY = b"uncore_trace.digest"
_GROUPS = b"uncore_trace.row_group_digests"
#: What is before the digits of the footer's digest: a key and a value in Thrift's compact protocol.
_PAIR = bytes([0x18, len(_KEY)]) + _KEY + bytes([0x18, len(_PREFIX) + _DIGITS]) + _PREFIX


class Damaged(ValueError):
    """A file of a recording has changed since it was written."""


class SoundFile:
    """An open file whose footer is what was written, or has no digest; its rows are verified before they are read.

    The footer is verified before it is parsed: what a parser makes of a damaged one may be anything.
    """

    def __init__(self, source: pa.NativeFile, name: str) -> None:
        """`name` is what errors call the file.

        Raises `Damaged` if its footer has changed since it was written, and what pyarrow raises if it is not Parquet.
        """
        self._footer, self.digest = _verified_footer(source, name)
        self._source, self._name, self.file = source, name, pq.ParquetFile(source)

    def verify_row_groups(self) -> None:
        """Reads the whole file.

        Raises `Damaged` if a byte has changed since it was written, or if it has no digest.
        """
        if self.digest is None:
            raise Damaged(f"{self._name} is damaged: it has no digest")
        source, name, metadata = self._source, self._name, self.file.metadata
        try:
            digests = json.loads((metadata.metadata or {})[_GROUPS])
        except (KeyError, ValueError):
            digests = None
        ends = [_end(metadata.row_group(number)) for number in range(metadata.num_row_groups)]
        is_listed = isinstance(digests, list) and len(digests) == len(ends)
        # No other bytes are between the last row group and the footer.
        if not is_listed or ends[-1:] not in ([], [self._footer]) or source.read_at(4, 0) != b"PAR1":
            raise Damaged(f"{name} is damaged in row group 0")
        begin = 0
        for number, end in enumerate(ends):
            if _digest(source, begin, end) != digests[number]:
                raise Damaged(f"{name} is damaged in row group {number}")
            begin = end


def _verified_footer(source: pa.NativeFile, name: str) -> tuple[int, str | None]:
    """The begin of the footer, and its digest; 0 and None if it has none or is not there."""
    end = source.size()
    trailer = source.read_at(8, end - 8) if end >= 12 else b""
    if trailer[4:] != b"PAR1":
        return 0, None
    length = struct.unpack("<I", trailer[:4])[0]
    begin = end - 8 - length
    if begin < 4:
        return 0, None
    if length > _FOOTER:
        raise Damaged(f"cannot read {name}: its footer is larger than the limit of {_FOOTER} bytes")
    footer = source.read_at(length, begin)
    # What a name in the metadata may look like comes before the pair.
    pair = footer.rfind(_PAIR, 0, max(length - _DIGITS, 0))
    if pair < 0:
        return 0, None
    digits = pair + len(_PAIR)
    after = footer[digits + _DIGITS :] + trailer
    found = xxhash.xxh64(footer[:digits] + b"0" * _DIGITS + after).hexdigest()
    if found.encode() != footer[digits : digits + _DIGITS]:
        raise Damaged(f"{name} is damaged: its footer has changed since it was written")
    return begin, f"xxh64:{found}"


def _end(group: pq.RowGroupMetaData) -> int:
    """The end of the last column chunk."""
    columns = [group.column(number) for number in range(group.num_columns)]
    return max((_begin(column) + column.total_compressed_size for column in columns), default=0)


def _begin(column: pq.ColumnChunkMetaData) -> int:
    return int(column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset)


def _digest(source: pa.NativeFile, begin: int, end: int) -> str:
    digest = xxhash.xxh64()
    while begin < end:
        chunk = source.read_at(min(_CHUNK, end - begin), begin)
        if not chunk:
            break
        digest.update(chunk)
        begin += len(chunk)
    return f"xxh64:{digest.hexdigest()}"
