"""A recording that an assistant names: only regular files below a directory are read, and not too large ones."""

from __future__ import annotations

import json
import re
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ._lines import EVENT
from ._losses import losses
from ._read import require_listed, select
from ._sound import SoundFile
from ._text import printable

#: Rows of `fabric` that are read: these take about 4 GB of memory and some 20 s.
MOST_ROWS = 5_000_000
_COLUMNS = [*EVENT, "owner", "counter", "ts", "mono_ns", "window_ns", "value", "total", "method", "confidence"]
_COLUMNS += ["cgroup_confidence", "socket", "comm", "cgroup", "container", "pod", "job"]
_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
#: The nearest to the machine first, as in `schema/link.rs`.
_SOURCES = {"calibrated": 0, "sysfs": 1, "catalog": 2}


class Refused(Exception):
    """The question has no answer; the text says why, and what to do."""


class Recording:
    """The rows of `fabric`, the metadata, and from their plan the links, and link and direction of each counter."""

    def __init__(self, root: Path, name: str) -> None:
        self.root, self.name, self.path = root, printable(name), root / name
        fabric = self._file("fabric")
        if fabric is None:
            raise Refused(f"there is no recording {self.name}: {self._others()}")
        # What is verified is what is read, whatever happens to the path.
        with pa.OSFile(str(fabric)) as source:
            sound = SoundFile(source, self.name)
            metadata, names, prefix = sound.file.metadata, sound.file.schema_arrow.names, b"uncore_trace."
            pairs = {key: value for key, value in (metadata.metadata or {}).items() if key.startswith(prefix)}
            self.facts = {key.removeprefix(prefix).decode(): value.decode() for key, value in pairs.items()}
            if "rollup_version" in self.facts or self.facts.get("schema_version") != "2":
                raise Refused(f"{self.name} is no recording that this version reads: ask `uncore-trace report`")
            if not 0 < metadata.num_rows <= MOST_ROWS:
                rows = f"{self.name} has {metadata.num_rows} rows, not 1 to {MOST_ROWS}"
                raise Refused(f"{rows}: `uncore-trace cut` a span")
            sound.verify_row_groups()
            self.rows = select(sound.file, [column for column in _COLUMNS if column in names])
        if "job" in names:
            # The steps of a job are one, as for `report --by job`.
            jobs = pc.replace_substring_regex(self.rows["job"].cast(pa.string()), r"(?s)\..*", "")
            self.rows = self.rows.set_column(self.rows.column_names.index("job"), "job", jobs)
        self.links = {link["name"]: link for link in json.loads(self.facts.get("plan", "{}")).get("links", [])}
        counted = ((name, its) for name, link in self.links.items() for its in link["counters"])
        self.on = {its["counter"]: (name, its["direction"]) for name, its in counted}
        self.start: int = pc.min(pc.subtract(self.rows["mono_ns"], self.rows["window_ns"])).as_py()
        self.end: int = pc.max(self.rows["mono_ns"]).as_py()
        self.wall: int = self.rows["ts"][0].cast(pa.int64()).as_py() * 1000 - self.rows["mono_ns"][0].as_py()

    def _file(self, table: str) -> Path | None:
        """The file of a table. Links of the file system are followed before it is compared: one may lead outside."""
        try:
            file = self.path.resolve()
            is_dir = file.is_relative_to(self.root) and file.is_dir()
            file = (file / f"{table}.parquet").resolve() if is_dir else file
        except (OSError, ValueError, RuntimeError) as error:
            raise Refused(f"{self.name} is no path") from error
        if not file.is_relative_to(self.root):
            raise Refused(f"{self.name} is outside of the directory that may be read: {self._others()}")
        # A FIFO would be waited for.
        return file if file.is_file() and (is_dir or table == "fabric") else None

    def _others(self) -> str:
        found = ["."] if (self.root / "fabric.parquet").is_file() else []
        for path in self.root.iterdir():
            is_file = path.is_file() and path.suffix == ".parquet"
            if not path.is_symlink() and (is_file or (path / "fabric.parquet").is_file()):
                found.append(path.name)
        return "there are " + (", ".join(map(printable, sorted(found)[:12])) or "none directly below it")

    def table(self, name: str) -> list[dict[str, Any]] | None:
        """The rows of another table; None: a single file, or a recording without it."""
        file = self._file(name)
        if file is None:
            return None
        with pa.OSFile(str(file)) as source:
            sound = SoundFile(source, f"{self.name}/{name}.parquet")
            require_listed(sound, name, json.loads(self.facts.get("tables", "{}")), f"{self.name}/{name}.parquet")
            sound.verify_row_groups()
            found: list[dict[str, Any]] = select(sound.file, None).to_pylist()
            return found

    def moment(self, text: str, at_end: bool = False) -> int:
        """A time as `report --from` and `--to` take it, ns."""
        if text.startswith("mark:"):
            marks = self.table("marks") or json.loads(self.facts.get("marks", "{}")).get("marks", [])
            for mark in sorted(marks, key=lambda mark: mark["mono_ns"]):
                if text == f"mark:{mark['text']}":
                    last = mark["end_ns"] or (mark["mono_ns"] if mark["kind"] == "instant" else self.end)
                    return last if at_end else mark["mono_ns"]
            names = ", ".join(repr(printable(mark["text"])) for mark in marks[:8]) or "none"
            raise Refused(f"{self.name} has no {printable(text)}: its marks are {names}")
        if re.fullmatch(r"[0-9]{1,9}(\.[0-9]*)?", text):
            return self.start + int(float(text) * 1e9)
        if re.fullmatch(r"([0-9]{1,18}(ns|us|ms|s|m|h))+", text):
            return self.start + sum(int(it[1]) * _NS[it[2]] for it in re.finditer("([0-9]+)([a-z]+)", text))
        try:
            since = datetime.fromisoformat(text.replace("Z", "+00:00")) - datetime(1970, 1, 1, tzinfo=timezone.utc)
        except (ValueError, TypeError) as error:
            raise Refused("write a time as 2s, 1m30s, 2026-01-31T12:00:00Z or mark:NAME") from error
        return (since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds) * 1000 - self.wall

    def span(self, text: str) -> tuple[int, int]:
        """`FROM..TO`, each of which may be left out, or `mark:NAME`: after its begin, and until its end, ns."""
        begin, dots, end = text.partition("..")
        if not dots and text and not text.startswith("mark:"):
            raise Refused("write a span as FROM..TO, e.g. 2s..3s, or as mark:NAME")
        end = end if dots else begin
        begin_ns = self.moment(begin) if begin else self.start
        return max(begin_ns, self.start), min(self.moment(end, at_end=True) if end else self.end, self.end)

    def of(self, span: tuple[int, int]) -> pa.Table:
        """The rows of the windows that end in this time."""
        rows = within(self.rows, span)
        if not len(rows):
            covered = f"{(self.end - self.start) / 1e9:.3f} s from {self._utc(self.start)}"
            raise Refused(f"no window of {self.name} ends in that time: it covers {covered}")
        return rows

    def about(self, span: tuple[int, int]) -> dict[str, Any]:
        """What every answer says of its time, and of what is missing in it."""
        lost = losses(self.facts, self.table("loss"), self.start, *span)
        rows = within(self.rows, span)
        unknown = rows.filter(pc.is_null(rows["total"])).group_by(["counter", "mono_ns"]).aggregate([])
        seconds = [(ns - self.start) / 1e9 for ns in [*span, self.end]]
        told: dict[str, Any] = dict(zip(["from_s", "to_s", "recorded_s"], seconds))
        told |= {"from": self._utc(span[0]), "to": self._utc(span[1])}
        return {"recording": self.name, "span": told, "losses": lost | {"windows_without_a_value": len(unknown)}}

    def _utc(self, ns: int) -> str:
        return datetime.fromtimestamp((ns + self.wall) / 1e9, timezone.utc).isoformat(timespec="milliseconds")

    def by_link(self, rows: pa.Table) -> pa.Table:
        """The rows of counters on links, with the link as event and the direction as filter."""
        place = pc.index_in(rows["counter"], value_set=pa.array(list(self.on), pa.int32()))
        rows, place = rows.filter(pc.is_valid(place)), place.drop_null()
        for at, column in enumerate(["event", "filter"]):
            names = pa.array([way[at] for way in self.on.values()], pa.string()).take(place)
            rows = rows.set_column(rows.column_names.index(column), column, names)
        return rows

    def peak(self, link: str, direction: str) -> dict[str, Any] | None:
        """The peak of this direction; that of the sum of both, if there is no other."""
        peaks = sorted(self.links[link].get("peaks", []), key=lambda peak: _SOURCES.get(peak["source"], 3))
        peaks = [peak for way in [direction, "both"] for peak in peaks if peak["direction"] == way]
        return {name: peaks[0][name] for name in ["bytes_per_s", "direction", "source"]} if peaks else None


def within(rows: pa.Table, span: tuple[int, int]) -> pa.Table:
    ends = rows["mono_ns"]
    return rows.filter(pc.and_(pc.greater(ends, span[0]), pc.less_equal(ends, span[1])))
