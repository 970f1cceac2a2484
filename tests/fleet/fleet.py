"""What `cargo xtask fleet` asks engines about roll-ups that `generate.py` wrote. All write JSON on stdout.

    fleet.py ask ENGINE ROOT COMPACT-DUCKDB COMPACT-SPARK VERSIONS
    fleet.py compact ENGINE ROOT TO
    fleet.py versions ROOT TO
    fleet.py iceberg ROOT COMPACT WAREHOUSE
    fleet.py size ROOT
"""

import json
import os
import pathlib
import re
import shutil
import sys
import tempfile
import time

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "queries"))
import ask  # noqa: E402
import compact  # noqa: E402

CLUSTER, DATE, HOUR, HOST = "north", "2026-11-17", 10, "node-0007"
IN_HOUR = f"cluster = '{CLUSTER}' AND date = '{DATE}' AND hour = {HOUR}"
# The lab's links are far from full: what is asked is which were above 0.7 % of their peak.
QUESTIONS = {
    "who_filled": {
        "cluster": CLUSTER,
        "date": DATE,
        "hour": HOUR,
        "host": HOST,
        "link": "memory 0",
        "direction": "in",
    },
    "top_tenants": {"cluster": CLUSTER, "date": DATE, "limit": 10},
    "above": {"cluster": CLUSTER, "date": DATE, "percent": 0.7, "seconds": 60},
    "bill": {"cluster": CLUSTER, "from": "2026-11-16", "to": DATE, "tenant": "team-07"},
    "deployment": {
        "cluster": CLUSTER,
        "date": DATE,
        "tenant": "team-07",
        "from": f"{DATE} 10:20:00",
        "at": f"{DATE} 10:30:00",
        "to": f"{DATE} 10:40:00",
    },
}
# The compacted roots have one hour of one cluster: questions about more days would differ.
COMPACTED = {name: values for name, values in QUESTIONS.items() if name != "top_tenants"} | {
    "bill": QUESTIONS["bill"] | {"from": DATE},
}


# What the older files of the test lack.
LACKING = ["peak", "peak_direction", "container", "pod", "low", "high"]
# Of the few hosts of which there are older and newer files; the first question is about an older one.
VERSIONED = {
    "who_filled": QUESTIONS["who_filled"] | {"host": "node-0003"},
    "above": QUESTIONS["above"] | {"percent": 0.5},
    "bill": QUESTIONS["bill"] | {"tenant": "team-%"},
    "deployment": QUESTIONS["deployment"] | {"tenant": "team-%"},
}


def open_engine(engine, root):
    return ask.ENGINES[engine](str(root))


def answers(opened, engine, questions):
    found, seconds = {}, {}
    for name, values in questions.items():
        query = ask.question(engine, name, values)
        begin = time.monotonic()
        _, rows = opened.ask(query)
        seconds[name] = time.monotonic() - begin
        found[name] = [[ask.plain(cell) for cell in row] for row in rows]
    return found, seconds


def hour_files(root):
    return sorted(compact.part(root, CLUSTER, DATE, HOUR).glob("*.parquet"))


# Of each engine: how many files and row groups, or rows, a query read.


def read_by_duckdb(opened, query):
    text = opened.connection.execute(f"EXPLAIN (ANALYZE, FORMAT json) {query}").fetchall()[0][1]
    scans = []

    def walk(node):
        if node.get("type") == "TABLE_SCAN":
            scans.append(node)
        for child in node.get("children", []) + node.get("operator", []):
            walk(child)

    walk(json.loads(text))
    files, groups = 0, 0
    for scan in scans:
        files += int(scan["extra_info"]["Total Files Read"])
        groups += scan["row_groups_scanned"]
    return {"files": files, "groups": groups}


def read_by_clickhouse(opened, query):
    def events():
        rows = opened.json("SELECT event, value FROM system.events")["data"]
        return {name: int(value) for name, value in rows}

    before = events()
    opened.json(query)
    after = events()

    def more(name):
        return after.get(name, 0) - before.get(name, 0)

    # Row groups that a bloom filter leaves out are counted as read; their rows are not filtered.
    return {"files": more("EngineFileLikeReadFiles"), "rows": more("ParquetRowsFilterExpression")}


def read_by_spark(opened, query):
    # With adaptive execution the plan's leaves are stages.
    opened.session.conf.set("spark.sql.adaptive.enabled", "false")
    frame = opened.session.sql(query)
    frame.collect()
    leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
    metrics = [leaves.apply(place).metrics() for place in range(leaves.length())]
    opened.session.conf.set("spark.sql.adaptive.enabled", "true")

    def of(name):
        return sum(metric.apply(name).value() for metric in metrics)

    return {"files": of("numFiles"), "rows": of("numOutputRows")}


def read_by_polars(opened, query):
    import polars

    # It says what it skips only on standard error.
    kept = os.dup(2)
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), 2)
        polars.Config.set_verbose(True)
        try:
            opened.context.execute(query, eager=False).collect(engine="streaming")
        finally:
            polars.Config.set_verbose(False)
            os.dup2(kept, 2)
            os.close(kept)
        log.seek(0)
        text = log.read().decode()
    sources = re.findall(r"Readers init: (\d+) / \((\d+) total\)", text)
    read = re.findall(r"reading (\d+) / (\d+) row groups", text)
    return {
        "files": sum(int(one) for one, _ in sources),
        "groups": sum(int(one) for one, _ in read),
    }


READ_BY = {
    "duckdb": read_by_duckdb,
    "clickhouse": read_by_clickhouse,
    "spark": read_by_spark,
    "polars": read_by_polars,
}


def pruned(engine, root, large):
    """What was read of what there is, and the most that may be."""
    files = {at: [pq.read_metadata(file) for file in hour_files(at)] for at in (root, large)}
    checks = []

    def read(at, condition):
        # ClickHouse and Spark have one view of this name, that of the last root.
        query = f"SELECT sum(value) FROM rollup WHERE {IN_HOUR}{condition}"
        return READ_BY[engine](open_engine(engine, at), query)

    def check(what, found, most, every):
        checks.append({"what": what, "read": found, "most": most, "all": every})

    every = list(root.glob(ask.FILES))
    for name, values in QUESTIONS.items():
        most = sum(is_of(file, values) for file in every)
        found = READ_BY[engine](open_engine(engine, root), ask.question(engine, name, values))
        check(f"files, {name}", found["files"], most, len(every))
    own = [pq.read_metadata(file) for file in hour_files(root) if file.name.startswith(HOST + "_")]
    # Where rows of a host begin in a large file, and end, is anywhere in a row group.
    largest = max(it.row_group(at).num_rows for it in files[large] for at in range(it.num_row_groups))
    spread = -(-count(own)["rows"] // largest) + 1
    few = {"groups": spread, "rows": spread * largest}
    probes = [("large files, a host", large, f"host = '{HOST}'", few)]
    if engine != "polars":
        # The small files have words in dictionaries. Polars takes those for categories, which the view casts,
        # and no statistics are compared with what is cast. It reads no bloom filters either, and by the least
        # and greatest a pod may be nearly anywhere.
        probes.append(("small files, a host", root, f"host = '{HOST}'", count(own)))
        probes.append(("large files, a pod", large, f"pod = '{a_pod(root)}'", few))
    for what, at, condition, most in probes:
        found = read(at, f" AND {condition}")
        unit = "groups" if "groups" in found else "rows"
        check(f"{unit} of {what}", found[unit], most[unit], count(files[at])[unit])
    return checks


def is_of(file, values):
    """Whether a question with these parameters is about the directory of a file."""
    hour, date, cluster = (it.name.split("=")[1] for it in file.parents[:3])
    first = values["from"][:10] if "from" in values else values["date"]
    last = values["to"][:10] if "to" in values else values["date"]
    of_hour = int(hour) == values.get("hour", int(hour))
    return cluster == values["cluster"] and first <= date <= last and of_hour


def count(files):
    """Row groups and rows of files."""
    groups = sum(it.num_row_groups for it in files)
    return {"groups": groups, "rows": sum(it.num_rows for it in files)}


def a_pod(root):
    """A pod of the host."""
    file = next(file for file in hour_files(root) if file.name.startswith(HOST + "_"))
    pods = pc.unique(pq.read_table(file, columns=["pod"])["pod"].cast(pa.string()))
    return min(pod for pod in pods.to_pylist() if pod)


def ask_all(engine, root, by_duckdb, by_spark, versions):
    opened = open_engine(engine, root)
    # The second time files are in the page cache, and a JVM is warm.
    answers(opened, engine, QUESTIONS)
    every, seconds = answers(opened, engine, QUESTIONS)
    result = {"answers": every, "seconds": seconds}
    for which, at in [("DuckDB", by_duckdb), ("Spark", by_spark)]:
        opened = open_engine(engine, at)
        rows, result["large_seconds"] = answers(opened, engine, COMPACTED)
        every |= {f"{name}, large files of {which}": it for name, it in rows.items()}
    # What the large files must give too: the same questions of the same hour in the small ones.
    rows, _ = answers(open_engine(engine, root), engine, COMPACTED)
    every |= {f"{name}, small files": it for name, it in rows.items()}
    rows, _ = answers(open_engine(engine, versions), engine, QUESTIONS | VERSIONED)
    every |= {f"{name}, two versions": it for name, it in rows.items()}
    return result | {"pruned": pruned(engine, root, by_duckdb)}


def versions(root, to):
    """Six hosts of the hour, two of each seed: files as they are, older and newer ones."""
    files = hour_files(root)[:6]
    target = compact.part(to, CLUSTER, DATE, HOUR)
    target.mkdir(parents=True)
    for place, file in enumerate(files):
        rows = pq.read_table(file)
        metadata = dict(rows.schema.metadata)
        if place in (2, 3):
            rows = rows.drop_columns(LACKING)
            # Below the first version, so that it is told from it.
            metadata[b"uncore_trace.rollup_version"] = b"0"
        elif place in (4, 5):
            metadata[b"uncore_trace.rollup_version"] = b"99"
            rows = rows.add_column(0, "rack", pa.array(["r1"] * len(rows)))
            rows = rows.append_column("watts", pa.array([1.5] * len(rows)))
        pq.write_table(rows.replace_schema_metadata(metadata), target / file.name)
    # Sums over all of them, to be found whatever an engine makes of columns that are missing.
    rows = [pq.read_table(file, columns=["value", "unit", "link", "subsystem"]) for file in files]
    rows = pa.concat_tables(table.cast(pa.schema([
        ("value", pa.float64()), ("unit", pa.string()), ("link", pa.string()),
        ("subsystem", pa.string()),
    ])) for table in rows)  # fmt: skip
    rows = rows.filter((pc.field("unit") == "bytes") & pc.field("link").is_valid())
    opened = open_engine("duckdb", to)
    values = QUESTIONS["top_tenants"] | {"limit": 1000}
    _, tenants = opened.ask(ask.question("duckdb", "top_tenants", values))
    found = sum(row[4] for row in tenants)
    said = opened.connection.execute(
        ask.question("duckdb", "versions", {"root": to, "files": ask.FILES})
    ).fetchall()
    return {
        "sums": [pc.sum(rows["value"]).as_py() / 1e9, found],
        "said": [[row[0], row[3]] for row in said],
    }


def iceberg(root, large, warehouse):
    import iceberg as own
    import logging

    logging.disable(logging.WARNING)
    warehouse.mkdir()
    catalog = own.catalog(f"sqlite:///{warehouse}/catalog.db", f"file://{warehouse}")
    files = sorted(large.glob(ask.FILES))
    # Beside the large files those of the other hours, as they are.
    others = sorted(set(root.glob(ask.FILES)) - set(hour_files(root)))
    table = own.register(catalog, files + others)
    hour = f"cluster == '{CLUSTER}' and ts >= '{DATE}T10:00:00+00:00' and ts < '{DATE}T11:00:00+00:00'"
    scan = table.scan(row_filter=hour, selected_fields=("value", "high", "pod"))
    planned = len(list(scan.plan_files()))
    rows = scan.to_arrow()
    expected = pa.concat_tables(
        pq.read_table(file, columns=["value", "high", "mono_ns"]) for file in hour_files(root)
    )
    sums = [
        [name, pc.sum(rows[name]).as_py(), pc.sum(expected[name]).as_py()] for name in ("value", "high")
    ]
    sums.append(["rows", rows.num_rows, expected.num_rows])

    def refused(name, act):
        try:
            act()
        except (Exception, SystemExit) as error:
            return [name, f"{type(error).__name__}: {error}".splitlines()[0]]
        return [name, None]

    spoiled = warehouse / "spoiled"
    spoiled.mkdir()
    rows = pq.read_table(others[0]).slice(0, 1000)
    nanos = rows.set_column(
        rows.column_names.index("ts"), "ts", rows["ts"].cast(pa.timestamp("ns", "UTC"))
    )
    pq.write_table(nanos, spoiled / "nanoseconds.parquet")
    words = [name for name in rows.column_names if name != "cluster"]
    pq.write_table(rows, spoiled / "no-statistics.parquet", write_statistics=words)
    # What pyiceberg itself makes of the second: it takes it, and finds nothing.
    loose = own.SqlCatalog(
        "loose", uri=f"sqlite:///{warehouse}/loose.db", warehouse=f"file://{warehouse}"
    )
    refuse, own.refuse = own.refuse, lambda file: None
    lost = own.register(loose, [spoiled / "no-statistics.parquet"])
    own.refuse = refuse
    return {
        "files": [planned, len(files + others), len(files)],
        "sums": sums,
        "refused": [
            refused("nanoseconds", lambda: own.register(catalog, [spoiled / "nanoseconds.parquet"])),
            refused("statistics", lambda: own.register(catalog, [spoiled / "no-statistics.parquet"])),
            refused("twice", lambda: own.register(catalog, files)),
        ],
        "lost": len(lost.scan(row_filter=f"cluster == '{CLUSTER}'").to_arrow()),
    }


def size(root):
    """Bytes of a host-hour, rows of it, and of how many hosts."""
    files = hour_files(root)
    return {
        "hosts": len(files),
        "bytes": sum(file.stat().st_size for file in files) / len(files),
        "rows": sum(pq.read_metadata(file).num_rows for file in files) / len(files),
        "groups": sum(pq.read_metadata(file).num_row_groups for file in files),
        "files": len(files),
    }


def bloom(root, large):
    """Of each column the row groups that have values, those with a filter, and those that a pod could be in
    by the least and greatest value; and those in which the filter lets it be."""
    pod = a_pod(root)
    import duckdb

    def of(files):
        listed = str([str(file) for file in files])
        rows = duckdb.execute(
            f"""SELECT path_in_schema, count(stats_min_value), count(bloom_filter_offset),
                count(*) FILTER (stats_min_value <= $pod AND stats_max_value >= $pod)
            FROM parquet_metadata({listed}) WHERE path_in_schema IN ('pod', 'container', 'cgroup')
            GROUP BY ALL ORDER BY ALL""",
            {"pod": pod},
        ).fetchall()
        probed = duckdb.execute(
            f"SELECT count(*) FROM parquet_bloom_probe({listed}, 'pod', $pod) WHERE NOT bloom_filter_excludes",
            {"pod": pod},
        ).fetchall()[0][0]
        return {"columns": [list(row) for row in rows], "pod": probed}

    return of(hour_files(large))


def main():
    match sys.argv[1:]:
        case ["ask", engine, *roots]:
            answer = ask_all(engine, *map(pathlib.Path, roots))
        case ["compact", engine, root, to]:
            begin = time.monotonic()
            # Four files or so, so that there are some to leave out.
            limit = sum(file.stat().st_size for file in hour_files(pathlib.Path(root))) // 4
            files = compact.compact(engine, root, to, CLUSTER, DATE, HOUR, limit)
            seconds = time.monotonic() - begin
            root, to = pathlib.Path(root), pathlib.Path(to)
            answer = {"files": files, "seconds": seconds, "bytes": size(to)["bytes"] * files[1]}
            answer |= {"bloom": bloom(root, to), "groups": size(to)["groups"]}
        case ["versions", root, to]:
            answer = versions(pathlib.Path(root), pathlib.Path(to))
        case ["iceberg", root, large, warehouse]:
            answer = iceberg(*map(pathlib.Path, (root, large, warehouse)))
        case ["size", root]:
            answer = size(pathlib.Path(root))
        case other:
            sys.exit(f"unknown: {other}")
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
