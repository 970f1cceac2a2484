"""Merges the many small files of an hour into few large sorted ones, in a separate directory.

    compact.py ENGINE FROM TO CLUSTER DATE HOUR [--bytes 256000000]
    compact.py duckdb /bucket/hosts /bucket/compact north 2026-11-17 10

ENGINE is duckdb or spark. FROM and TO are directories, what is above `cluster=...`; FROM is not changed. The rows are
the same: rows and sums of each host and event are compared, and where they differ it fails and leaves
nothing in TO. Run it once an hour is over and uploaded. It may run again: what it wrote is replaced.

Rows are sorted by host, then as in the small files, and a row group has some 131072 of them: so a question
about a host or a counter of it reads one or two. A question about a pod is about few hosts, but nothing
that is sorted says which: for that there are bloom filters of pod, container and cgroup.

DuckDB writes bloom filters of every column that is in a dictionary. Spark writes those it is told to, and
only where not all of a column chunk is in a dictionary; so the three columns get none.
"""

import argparse
import math
import os
import pathlib
import shutil

import ask

ROWS = 131072
# What Spark's row groups and pages are limited by in place of that.
BLOCK = 6 * 2**20
PAGE_ROWS = 10_000
LARGE = 256_000_000
SORTED = "host, event, filter, pmu, owner, cgroup, comm, number, mono_ns"
BLOOM = ["pod", "container", "cgroup"]
# Values that must be equal before and after, for each host and event.
CHECKED = """
SELECT host, event, count(*), sum(value), sum(low), sum(high), sum(total), min(mono_ns),
    max(mono_ns)
FROM {} GROUP BY host, event ORDER BY host, event"""


def same(one, other):
    """Whether rows are equal, except for rounding: doubles are added in another order."""

    def near(one, other):
        if isinstance(one, float) and isinstance(other, float):
            return math.isclose(one, other, rel_tol=1e-9)
        return one == other

    return len(one) == len(other) and all(
        len(left) == len(right) and all(map(near, left, right)) for left, right in zip(one, other)
    )


def part(root, cluster, date, hour):
    return pathlib.Path(root) / f"cluster={cluster}/date={date}/hour={int(hour):02}"


def chunks(files, limit):
    """Files, one host after the other, until they are as large as a large one."""
    chunk, size = [], 0
    for file in files:
        length = file.stat().st_size
        if chunk and size + length > limit:
            yield chunk
            chunk, size = [], 0
        chunk.append(file)
        size += length
    if chunk:
        yield chunk


def quoted(text):
    """A text in SQL: paths and names of clusters may have quotes."""
    return "'" + str(text).replace("'", "''") + "'"


def duckdb(source, target, limit):
    import duckdb

    # The names begin with the host: so a large file has hosts that stand together.
    files = sorted(source.glob("*.parquet"))
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    # All files get the columns of all schemas.
    listed = ", ".join(map(quoted, files))
    read = f"read_parquet([{listed}], union_by_name = true, hive_partitioning = false)"
    before = connection.execute(CHECKED.format(read)).fetchall()
    columns = connection.execute(f"DESCRIBE SELECT * FROM {read}").fetchall()
    kept = versions(connection, listed)
    for number, chunk in enumerate(chunks(files, limit)):
        listed = ", ".join(map(quoted, chunk))
        have = {row[0] for row in connection.execute(
            f"DESCRIBE SELECT * FROM read_parquet([{listed}], union_by_name = true,"
            " hive_partitioning = false)"
        ).fetchall()}  # fmt: skip
        select = ", ".join(
            f'"{name}"' if name in have else f'CAST(NULL AS {kind}) AS "{name}"'
            for name, kind, *_ in columns
        )
        connection.execute(
            f"""COPY (
                SELECT {select} FROM read_parquet([{listed}], union_by_name = true,
                    hive_partitioning = false)
                ORDER BY {SORTED}
            ) TO {quoted(target / f"compact_{number:04}.parquet")}
            (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {ROWS}, KV_METADATA {kept})"""
        )
    after = f"read_parquet({quoted(target / '*.parquet')}, hive_partitioning = false)"
    return before, connection.execute(CHECKED.format(after)).fetchall()


def versions(connection, listed):
    """The versions of the files, for the metadata of the large ones: all that there are."""
    rows = connection.execute(
        f"""SELECT decode(key), string_agg(DISTINCT decode(value), ',' ORDER BY decode(value))
        FROM parquet_kv_metadata([{listed}])
        WHERE decode(key) IN ('uncore_trace.rollup_version', 'uncore_trace.tool_version',
            'uncore_trace.cluster')
        GROUP BY 1"""
    ).fetchall()
    pairs = ", ".join(f'"{key}": {quoted(value)}' for key, value in rows)
    return "{" + pairs + "}"


def spark(source, target, limit):
    engine = ask.Spark(source)
    session = engine.session
    session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    # Spark merges the schemas of the files: a column of a newer version is kept.
    read = session.read.option("mergeSchema", "true").option("pathGlobFilter", "*_*.parquet")
    read.parquet(str(source)).createOrReplaceTempView("before")
    rows = session.table("before")
    before = session.sql(CHECKED.format("before")).collect()
    size = sum(file.stat().st_size for file in source.glob("*.parquet"))
    order = [name.strip() for name in SORTED.split(",")]
    write = (
        rows.repartitionByRange(math.ceil(size / limit), "host")
        .sortWithinPartitions(*order)
        .write.mode("overwrite")
        .option("compression", "zstd")
        # Of pages, which are compressed, and of what is not yet a page: some 100000 to 500000 rows.
        .option("parquet.block.size", BLOCK)
        .option("parquet.page.row.count.limit", PAGE_ROWS)
        .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
    )
    for name in BLOOM:
        write = write.option(f"parquet.bloom.filter.enabled#{name}", "true")
        write = write.option(f"parquet.bloom.filter.expected.ndv#{name}", "10000")
        write = write.option(f"parquet.enable.dictionary#{name}", "false")
    write.parquet(str(target))
    for file in target.glob(".*.crc"):
        file.unlink()
    for number, file in enumerate(sorted(target.glob("part-*.parquet"))):
        file.rename(target / f"compact_{number:04}.parquet")
    session.read.parquet(str(target)).createOrReplaceTempView("after")
    return before, session.sql(CHECKED.format("after")).collect()


def compact(engine, source, target, cluster, date, hour, limit=LARGE):
    """Returns the numbers of files before and after."""
    source, final = part(source, cluster, date, hour), part(target, cluster, date, hour)
    # Invisible until it is complete: readers skip names that begin with a dot.
    work = final.parent / f".{final.name}.{os.getpid()}.tmp"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        before, after = {"duckdb": duckdb, "spark": spark}[engine](source, work, limit)
        if not before or not same(before, after):
            raise SystemExit(f"compact: {source}: the rows of {work} are not the same")
        shutil.rmtree(final, ignore_errors=True)
        work.rename(final)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return len(list(source.glob("*.parquet"))), len(list(final.glob("*.parquet")))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("engine", choices=["duckdb", "spark"])
    for name in ("source", "target", "cluster", "date", "hour"):
        parser.add_argument(name)
    parser.add_argument("--bytes", type=int, default=LARGE, help="of the files that become one")
    args = parser.parse_args()
    were, are = compact(
        args.engine, args.source, args.target, args.cluster, args.date, args.hour, args.bytes
    )
    print(f"{were} files became {are}")


if __name__ == "__main__":
    main()
