"""Merges the many small files of an hour into few large sorted ones, below another root.

    compact.py ENGINE FROM TO CLUSTER DATE HOUR [--bytes 256000000]
    compact.py duckdb s3://fleet/hosts s3://fleet/large north 2026-11-17 10

ENGINE is duckdb or spark. FROM and TO are directories or buckets, what is above `cluster=...`; FROM is not changed.
HOUR `all` is every hour of the day. The rows are the same: rows and sums of each host and event are compared,
and where they differ it fails and leaves nothing in TO.

A file that is not Parquet, is of another host, cluster or hour than its path, or lies where no file of a host is
(layout.py) is left out with a message, and the exit code is 1.

It may run again: it reads the files that it has not read, as those of a host that was late, and adds large
files of them. The manifest of an hour (store.py) names its large files. It is written last, at once: who reads what
it names sees the hour as before a run or as after it. One run at a time may write an hour.

Rows are sorted by host, then as in the small files, and a row group has some 131072 of them: so a question
about a host or a counter of it reads one or two. A question about a pod is about few hosts, but nothing
that is sorted says which: for that there are bloom filters of pod, container and cgroup.

DuckDB writes bloom filters of every column that is in a dictionary. Spark writes those it is told to, and
only where not all of a column chunk is in a dictionary; so the three columns get none.
"""

import argparse
import hashlib
import itertools
import json
import math
import pathlib
import sys
import tempfile
import threading

import ask
import layout
import pyarrow as pa
import pyarrow.parquet as pq
import store
from ask import quoted

ROWS = 131072
# What Spark's row groups and pages are limited by in place of that.
BLOCK = 6 * 2**20
PAGE_ROWS = 10_000
LARGE = 256_000_000
# Of files of fewer rows so many are put together.
FEW = 4096
TOGETHER = 256
# Of each large file the small files that are in it: {NAME: BYTES}.
INPUTS = "_inputs"
SORTED = "host, event, filter, pmu, owner, cgroup, comm, number, mono_ns"
BLOOM = ["pod", "container", "cgroup"]
# Of the metadata of the files. Large ones have all values that there are.
KEPT = [b"uncore_trace.rollup_version", b"uncore_trace.tool_version", b"uncore_trace.cluster"]
# Values that must be equal before and after, for each host and event.
CHECKED = """
SELECT host, event, count(*), sum(abs(value)), sum(abs(low)), sum(abs(high)), sum(abs(total)), min(mono_ns),
    max(mono_ns)
FROM {} GROUP BY host, event ORDER BY host, event"""


def same(one, other):
    """Whether rows are equal, except for rounding: doubles are added in another order."""

    def near(one, other):
        if isinstance(one, float) and isinstance(other, float):
            return math.isclose(one, other, rel_tol=1e-9) or one != one and other != other
        return one == other

    return len(one) == len(other) and all(
        len(left) == len(right) and all(map(near, left, right)) for left, right in zip(one, other)
    )


def place(cluster, date, hour):
    """The directory of an hour below a root."""
    return f"cluster={cluster}/date={date}/hour={int(hour):02}"


def chunks(files, limit):
    """Files, one host after the other, until they are as large as a large one."""
    chunk, size = {}, 0
    for name, length in files.items():
        if chunk and size + length > limit:
            yield chunk
            chunk, size = {}, 0
        chunk[name] = length
        size += length
    if chunk:
        yield chunk


def duckdb(source, target):
    import duckdb

    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"SET temp_directory = {quoted(target.parent / 'spilled')}")
    # All files get the columns of all schemas.
    listed = ", ".join(map(quoted, sorted(source.iterdir())))
    read = f"read_parquet([{listed}], union_by_name = true, hive_partitioning = false)"
    before = connection.execute(CHECKED.format(read)).fetchall()
    connection.execute(
        f"""COPY (SELECT * FROM {read} ORDER BY {SORTED}) TO {quoted(target)}
        (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {ROWS}, KV_METADATA {versions(connection, listed)})"""
    )
    after = f"read_parquet({quoted(target)}, hive_partitioning = false)"
    return before, connection.execute(CHECKED.format(after)).fetchall()


def versions(connection, listed):
    """The versions of the files, for the metadata of the large ones."""
    rows = connection.execute(
        f"""SELECT decode(key), string_agg(DISTINCT decode(value), ',' ORDER BY decode(value))
        FROM parquet_kv_metadata([{listed}])
        WHERE decode(key) IN ({", ".join(quoted(key.decode()) for key in KEPT)})
        GROUP BY 1"""
    ).fetchall()
    pairs = ", ".join(f'"{key}": {quoted(value)}' for key, value in rows)
    return "{" + pairs + "}"


def spark(source, target):
    session = ask.spark_session()
    session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    # Spark merges the schemas of the files: a column of a newer version is kept.
    read = session.read.option("mergeSchema", "true").option("pathGlobFilter", "*_*.parquet")
    read.parquet(str(source)).createOrReplaceTempView("before")
    before = session.sql(CHECKED.format("before")).collect()
    write = (
        session.table("before")
        .coalesce(1)
        .sortWithinPartitions(*SORTED.split(", "))
        .write.option("compression", "zstd")
        # Of pages, which are compressed, and of what is not yet a page: some 100000 to 500000 rows.
        .option("parquet.block.size", BLOCK)
        .option("parquet.page.row.count.limit", PAGE_ROWS)
    )
    for name in BLOOM:
        write = write.option(f"parquet.bloom.filter.enabled#{name}", "true")
        write = write.option(f"parquet.bloom.filter.expected.ndv#{name}", "10000")
        write = write.option(f"parquet.enable.dictionary#{name}", "false")
    directory = target.with_suffix("")
    write.parquet(str(directory))
    (made,) = directory.glob("part-*.parquet")
    made.rename(target)
    session.read.parquet(str(target)).createOrReplaceTempView("after")
    return before, session.sql(CHECKED.format("after")).collect()


class Gathered:
    """The small files of a large one, in a directory; those of few rows are put together there.

    To open a file costs an engine more than a few rows of it, and memory as long as it reads any. Only files of
    one schema and version are put together: so the engine finds all that there are.
    """

    def __init__(self, directory):
        self.directory, self.lock = directory, threading.Lock()
        self.numbers, self.rows, self.waiting = itertools.count(), 0, {}

    def add(self, name, content, file, rows):
        """A file as it is or, where it has few rows, these."""
        with self.lock:
            self.rows += file.metadata.num_rows
        if rows is None:
            # The engine names the file if it cannot read it.
            path = self.directory / f"{next(self.numbers)}_{name.replace('/', '_')[-200:]}"
            path.write_bytes(content)
            return
        found = rows.schema.metadata or {}
        rows = rows.replace_schema_metadata({it: found[it] for it in KEPT if it in found})
        key = (rows.schema, *(found.get(it) for it in KEPT))
        with self.lock:
            tables = self.waiting.setdefault(key, [])
            tables.append(rows)
            if len(tables) < TOGETHER:
                return
            del self.waiting[key]
        self.write(tables)

    def write(self, tables):
        together = pa.concat_tables(tables).unify_dictionaries()
        pq.write_table(together, self.directory / f"few_{next(self.numbers)}.parquet")

    def end(self):
        for tables in self.waiting.values():
            self.write(tables)


def merge(engine, small, hour, chunk):
    """The bytes of a large file of these small ones, which are read once, and why some are left out."""
    with tempfile.TemporaryDirectory(prefix="compact-") as work:
        source, target = pathlib.Path(work) / "small", pathlib.Path(work) / "large.parquet"
        source.mkdir()
        gathered = Gathered(source)

        def fetch(name):
            try:
                content = small.read(f"{hour}/{name}")
            except FileNotFoundError:
                return "it was removed meanwhile"
            try:
                file = pq.ParquetFile(pa.BufferReader(content))
                if why := layout.odd(file.schema_arrow):
                    return why
                if file.metadata.num_rows == 0:
                    return "it has no rows"
                for it in file.metadata.metadata or {}:
                    (it + file.metadata.metadata[it]).decode()
                few = file.metadata.num_rows < FEW
                rows = file.read(None if few else layout.COLUMNS, use_threads=False)
                why = layout.stranger(f"{hour}/{name}", file.metadata.metadata or {}, rows)
            except Exception as error:  # whatever a host has written
                return (str(error) or type(error).__name__).splitlines()[0]
            if why is None:
                gathered.add(name, content, file, rows if few else None)
            return why

        left = {name: why for name, why in zip(chunk, store.each(fetch, chunk)) if why}
        if len(left) == len(chunk):
            return None, left
        gathered.end()
        try:
            before, after = {"duckdb": duckdb, "spark": spark}[engine](source, target)
        except Exception as error:
            raise SystemExit(f"compact: {small.url}/{hour}: {str(error).splitlines()[0]}") from error
        rows = sum(row[2] for row in before)
        if rows != gathered.rows or not before or not same(before, after):
            raise SystemExit(f"compact: {small.url}/{hour}: the rows of the large file are not the same")
        return target.read_bytes(), left


def unread(small, large, hour, manifest):
    """The small files that no file of the manifest has and their sizes, and what is no file of a host."""
    lists = store.each(lambda name: json.loads(large.read(f"{INPUTS}/{hour}/{name}.json")), manifest)
    read = {name: size for inputs in lists for name, size in inputs.items()}
    found, others = small.small(hour)
    for name, size in found.items():
        if read.get(name, size) != size:
            raise SystemExit(
                f"compact: {small.url}/{hour}/{name} has changed since it was read: remove"
                f" {large.url}/{store.MANIFESTS}/{hour}.json to compact the hour anew"
            )
    return {name: size for name, size in found.items() if name not in read}, others


def compact(engine, source, target, cluster, date, hour, limit=LARGE):
    """Returns the number of files that were added, that of the large files of the hour, and why some were left out."""
    small, large = store.Root(source), store.Root(target)
    if small.path == large.path:
        raise SystemExit(f"compact: FROM and TO are {small.url}: a query would find each row twice")
    hour = place(cluster, date, hour)
    manifest = large.manifest(hour)
    late, others = unread(small, large, hour, manifest)
    left = dict.fromkeys(others, "no file of a host is there")
    if not late:
        return 0, len(manifest), left
    plan = {}
    for chunk in chunks(late, limit):
        digest = hashlib.sha256(json.dumps(chunk).encode()).hexdigest()
        plan[f"compact_{digest[:16]}.parquet"] = chunk
    # Of a run that did not end. What this one would write the same is kept.
    there = large.parquet(hour)
    for name in there.keys() - manifest.keys() - plan.keys():
        large.remove(f"{hour}/{name}")
    named = manifest | {name: there[name] for name in plan if name in there}
    made, strangers, done = set(), {}, False
    try:
        for name, chunk in plan.items():
            if name in there:
                continue
            content, foreign = merge(engine, small, hour, chunk)
            strangers |= foreign
            if content is None:
                continue
            inputs = {name: size for name, size in chunk.items() if name not in foreign}
            large.write(f"{INPUTS}/{hour}/{name}.json", json.dumps(inputs, indent=0).encode())
            made.add(name)
            large.write(f"{hour}/{name}", content)
            named[name] = len(content)
        stored = large.parquet(hour)
        for name, size in named.items():
            if stored.get(name) != size:
                raise SystemExit(
                    f"compact: {large.url}/{hour}/{name}: the store has {stored.get(name)} of {size} bytes"
                )
        if large.manifest(hour) != manifest:
            raise SystemExit(f"compact: {large.url}/{hour}: another run has written this hour: run it again")
        if named != manifest:
            large.publish(hour, named)
        done = True
    finally:
        if not done:
            for name in made & large.parquet(hour).keys() - large.manifest(hour).keys():
                large.remove(f"{hour}/{name}")
    return len(late) - len(strangers), len(named), left | strangers


def hours(source, cluster, date, hour):
    if hour != "all":
        return [int(hour)]
    small = store.Root(source)
    at = f"cluster={cluster}/date={date}"
    found = small.directories(at)
    return [int(name.removeprefix("hour=")) for name in found if layout.hour_of(f"{at}/{name}")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("engine", choices=["duckdb", "spark"])
    for name in ("source", "target", "cluster", "date", "hour"):
        parser.add_argument(name)
    parser.add_argument("--bytes", type=int, default=LARGE, help="of the files that become one")
    args, status = parser.parse_args(), 0
    for hour in hours(args.source, args.cluster, args.date, args.hour):
        try:
            added, are, left = compact(
                args.engine, args.source, args.target, args.cluster, args.date, hour, args.bytes
            )
        except SystemExit as error:
            print(error, file=sys.stderr)
            status = 1
            continue
        print(f"hour {hour:02}: {added} files were added; there are {are} large ones")
        for name, why in left.items():
            print(f"compact: hour {hour:02}: left out {name!r}: {why}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
