"""Files and rows that engines read for an answer, and those that they could have skipped."""

import json
import os
import pathlib
import re
import sys
import tempfile

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


def open_engine(engine, root):
    return ask.ENGINES[engine](str(root))


def part(root, cluster=CLUSTER):
    return pathlib.Path(root) / compact.place(cluster, DATE, HOUR)


def hour_files(root):
    """The large files of the hour, or those of its hosts."""
    return sorted(part(root).glob("*.parquet")) or sorted(part(root).glob("host=*/*.parquet"))


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
    """Numbers of files and rows that were read, of all, and the limit."""
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
    own = [pq.read_metadata(file) for file in hour_files(root) if file.parent.name == f"host={HOST}"]
    # Where rows of a host begin in a large file, and end, is anywhere in a row group.
    largest = max(it.row_group(at).num_rows for it in files[large] for at in range(it.num_row_groups))
    spread = -(-count(own)["rows"] // largest) + 1
    few = {"groups": spread, "rows": spread * largest}
    probes = [("large files, a host", large, f"host = '{HOST}'", few)]
    if engine != "polars":
        # Polars reads no bloom filters, and by the least and greatest a pod may be nearly anywhere.
        # A bloom filter says yes to one in a hundred values that are not there (DuckDB's default ratio).
        wrong = count(files[large])["groups"] // 50
        spread += wrong
        several = {"groups": spread, "rows": spread * largest}
        probes.append(("large files, a pod", large, f"pod = '{a_pod(root)}'", several))
    for what, at, condition, most in probes:
        found = read(at, f" AND {condition}")
        unit = "groups" if "groups" in found else "rows"
        check(f"{unit} of {what}", found[unit], most[unit], count(files[at])[unit])
    return checks


def is_of(file, values):
    """Whether a question with these parameters is about the directory of a file."""
    host, hour, date, cluster = (it.name.split("=")[1] for it in file.parents[:4])
    first = values["from"][:10] if "from" in values else values["date"]
    last = values["to"][:10] if "to" in values else values["date"]
    of_hour = int(hour) == values.get("hour", int(hour))
    of_host = host == values.get("host", host)
    return cluster == values["cluster"] and first <= date <= last and of_hour and of_host


def count(files):
    """Row groups and rows of files."""
    groups = sum(it.num_row_groups for it in files)
    return {"groups": groups, "rows": sum(it.num_rows for it in files)}


def a_pod(root):
    """A pod of the host."""
    file = next(file for file in hour_files(root) if file.parent.name == f"host={HOST}")
    pods = pc.unique(pq.read_table(file, columns=["pod"])["pod"].cast(pa.string()))
    return min(pod for pod in pods.to_pylist() if pod)


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
