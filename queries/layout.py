"""The names of roll-ups below a root: cluster=C/date=YYYY-MM-DD/hour=HH/host=NAME/BOOT_SECOND.parquet.

Large files, which `compact.py` makes, are of many hosts: cluster=C/date=YYYY-MM-DD/hour=HH/compact_DIGEST.parquet.

Only names of this depth with valid values are read. So what a store's policy lets a host write below its own name is
never read as another's, whatever it puts between the parts that the policy names. The rules are those of the program
(uncore-trace-recording/src/tables/layout.rs).
"""

import datetime
import fnmatch
import re

import pyarrow as pa
import pyarrow.compute as pc

HOURS = "cluster=*/date=*/hour=*"
FILES = f"{HOURS}/host=*/*_*.parquet"
LARGE = f"{HOURS}/*_*.parquet"
VALUE = r"(?:[A-Za-z0-9_-]|%[0-9A-F]{2})(?:[A-Za-z0-9._-]|%[0-9A-F]{2})*"
HOUR = re.compile(rf"cluster=({VALUE})/date=(\d{{4}}-\d\d-\d\d)/hour=([01]\d|2[0-3])(?![^/])")
FILE = re.compile(rf"host=({VALUE})/[0-9A-Fa-f]{{0,8}}_[0-9]+\.parquet")
# What a file is looked at for, before any of its rows is believed.
COLUMNS = ["host", "cluster", "ts"]
TEXTS = "host boot_id cluster subsystem link direction peak_direction pmu event filter unit owner comm cgroup container pod job method"
TYPES = {"ts": pa.timestamp("us", "UTC"), "socket": pa.int16(), "number": pa.int32()}
TYPES |= dict.fromkeys(TEXTS.split(), pa.string())
TYPES |= dict.fromkeys("mono_ns window_ns known_ns".split(), pa.int64())
TYPES |= dict.fromkeys("peak value low high total".split(), pa.float64())
TYPES |= dict.fromkeys("running confidence".split(), pa.float32())


def encoded(name):
    """A name as a part of a path."""
    plain = re.compile(rb"[A-Za-z0-9._-]")
    text = "".join(
        chr(byte) if plain.match(bytes([byte])) and not (at == 0 and byte == ord(".")) else f"%{byte:02X}"
        for at, byte in enumerate((name or "").encode())
    )
    return text or "unknown"


def hour_of(path):
    """The hour that a path is in: its first moment; None where the path is not of the layout."""
    match = HOUR.match(path)
    try:
        return match and datetime.datetime.fromisoformat(f"{match[2]}T{match[3]}:00:00+00:00")
    except ValueError:
        return None


def is_small(path):
    """Whether it is the file of a host, by its path below the root."""
    hour, file = "/".join(path.split("/")[:3]), path.split("/", 3)[3:]
    return bool(file) and hour_of(hour) is not None and bool(FILE.fullmatch(file[0]))


def is_unfinished(path):
    """Whether a writer that has not ended has it, or readers leave it out by its name."""
    return any(part.endswith((".partial", ".tmp")) or part.startswith((".", "_")) for part in path.split("/"))


def matches(path, pattern):
    """Whether a path is of a pattern, part by part: no `*` is more than a part."""
    path, pattern = path.split("/"), pattern.split("/")
    return len(path) == len(pattern) and all(map(fnmatch.fnmatchcase, path, pattern))


def above(pattern):
    """The directory that all paths of a pattern have in common."""
    parts = pattern.split("/")[:-1]
    known = next((at for at, part in enumerate(parts) if set(part) & set("*?[")), len(parts))
    return "/".join(parts[:known])


def odd(schema):
    """Why engines would misread a file: they tell no columns apart by case, and unite types."""
    names = [name.lower() for name in schema.names]
    if len(set(names)) < len(names):
        return "two of its columns have one name"
    for field in schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if kind != TYPES.get(field.name.lower(), kind):
            return f"its column {field.name} has the type {kind}"
    return None


def stranger(path, metadata, rows):
    """Why a file may not be at a path: its footer or a row is of another host, cluster or hour. A row's host and
    cluster are those of the footer, as the program writes them."""
    cluster, host = HOUR.match(path)[1], FILE.fullmatch(path.split("/", 3)[3])[1]
    for column, named in (("cluster", cluster), ("host", host)):
        found = {(it or ("default" if column == "cluster" else "")) for it in rows[column].unique().to_pylist()}
        found.add(metadata.get(f"uncore_trace.{column}".encode(), b"default" if column == "cluster" else b"").decode())
        for value in found:
            if encoded(value) != named:
                return f"it is of the {column} {value!r}"
    if rows["ts"].null_count:
        return "it has windows without a time"
    begin, bounds = hour_of(path), pc.min_max(rows["ts"]).as_py()
    end = begin + datetime.timedelta(hours=1)
    if len(rows) and not (begin <= bounds["min"] and bounds["max"] < end):
        return f"it has windows that end outside of its hour: {bounds['min']} to {bounds['max']}"
    return None


def narrowed(values, engine):
    """The files that a question with these values can be about."""
    # ClickHouse compares names as paths have them.
    of = (lambda name: name) if engine == "clickhouse" else encoded
    cluster = of(values["cluster"]) if "cluster" in values else "*"
    first, last = values.get("from", "")[:10], values.get("to", "")[:10]
    date = values.get("date") or (first if first == last else "") or "*"
    hour = f"{int(values['hour']):02}" if str(values.get("hour", "")).isdigit() else "*"
    host = of(values["host"]) if "host" in values else "*"
    return f"cluster={cluster}/date={date}/hour={hour}/host={host}/*_*.parquet"
