"""Queries a recording with one engine, with the default options of its Parquet reader.

`engine.py schema DIR` writes the tables of a recording and the kinds of their columns, as PyArrow
reads them. `engine.py ENGINE DIR SCHEMA` answers `QUESTIONS` with duckdb, chdb (ClickHouse), spark,
polars or pandas. Both write JSON on stdout. A row of an answer begins with its keys.
"""

import json
import pathlib
import sys

# Where SQL is spoken: `{seconds}` is the time since 1970 in whole seconds; `{fabric}` and `{counters}`
# are the tables.
QUESTIONS = {
    "rows and values by subsystem": """
        SELECT subsystem, unit, count(*), count(value), sum(value) FROM {fabric}
        GROUP BY subsystem, unit""",
    "cgroups with the most context switches": """
        SELECT cgroup, cgroup_id, sum(value) AS switches FROM {fabric}
        WHERE owner = 'task' AND event = 'context-switches' AND cgroup IS NOT NULL
        GROUP BY cgroup, cgroup_id ORDER BY switches DESC, cgroup LIMIT 5""",
    "CPU time by second": """
        SELECT {seconds} AS second, sum(value) FROM {fabric} WHERE event = 'cpu-clock'
        GROUP BY {seconds}""",
    "raw counts by counter": """
        SELECT c.pmu, c.event, c.config, c.cpu, c.host, sum(f.value / c.scale)
        FROM {fabric} f JOIN {counters} c
        ON f.counter = c.counter AND f.host = c.host AND f.boot_id = c.boot_id
        GROUP BY c.pmu, c.event, c.config, c.cpu, c.host""",
    "confidence by method and owner": """
        SELECT method, owner, count(*), count(confidence), sum(confidence * value), sum(value)
        FROM {fabric} GROUP BY method, owner""",
}
# Answers are compared row by row; this question is about their order.
ORDERED = "cgroups with the most context switches"
# Every column of every table is read: what is asked of one of each kind.
ASKED = {
    "integer": ("min({0})", "max({0})"),
    "time": ("min({1})", "max({1})"),
    "real": ("count({0})", "sum({0})"),
    "text": ("count({0})", "sum({2}({0}))"),
}
EVERY = "every column of "


def schema(directory):
    """Tables of a recording, each with the kind of each column.

    Of a table without rows no column is listed: what engines say of nothing differs.
    """
    import pyarrow.parquet as pq
    import pyarrow.types as types

    def kind(field):
        if types.is_dictionary(field) or types.is_string(field):
            return "text"
        if types.is_timestamp(field):
            return "time"
        return "real" if types.is_floating(field) else "integer"

    files = sorted(directory.glob("*.parquet"))
    tables = {}
    for file in files:
        rows = pq.read_metadata(file).num_rows
        fields = pq.read_schema(file) if rows else []
        tables[file.stem] = {field.name: kind(field.type) for field in fields}
    return tables


def ask(run, directory, tables, source, micros, length):
    """The answers of an engine that speaks SQL.

    `source` is how a file is named in FROM, `micros` a time in microseconds since 1970, and
    `length` the function for the number of characters.
    """
    of = {table: source(directory / f"{table}.parquet") for table in tables}
    seconds = f"CAST(floor({micros.format('ts')} / 1000000.0) AS BIGINT)"
    answers = {
        name: run(query.format(**of, seconds=seconds)) for name, query in QUESTIONS.items()
    }
    for table, columns in tables.items():
        asked = ["count(*)"]
        for column, kind in columns.items():
            asked += [one.format(column, micros.format(column), length) for one in ASKED[kind]]
        answers[EVERY + table] = run(f"SELECT {', '.join(asked)} FROM {of[table]}")
    return answers


def duckdb(directory, tables):
    import duckdb

    def run(query):
        return duckdb.execute(query).fetchall()

    return ask(run, directory, tables, lambda file: f"'{file}'", "epoch_us({})", "length")


def chdb(directory, tables):
    import chdb

    def run(query):
        return json.loads(chdb.query(query, "JSONCompact").bytes())["data"]

    micros = "toUnixTimestamp64Micro({})"
    return ask(run, directory, tables, lambda file: f"file('{file}')", micros, "lengthUTF8")


def spark(directory, tables):
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = session.config("spark.ui.showConsoleProgress", "false")
    session = session.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    for table in tables:
        session.read.parquet(str(directory / f"{table}.parquet")).createOrReplaceTempView(table)

    def run(query):
        return [list(row) for row in session.sql(query).collect()]

    return ask(run, directory, tables, lambda file: file.stem, "unix_micros({})", "length")


def polars(directory, tables):
    import polars as pl

    frames = {table: pl.read_parquet(directory / f"{table}.parquet") for table in tables}
    fabric, counters = frames["fabric"], frames["counters"]

    def sum_of(column):
        # SQL's sum of nothing is null, Polars' is 0.
        return pl.when(column.count() > 0).then(column.sum())

    value = sum_of(pl.col("value")).alias("value")

    def by(frame, keys, *columns):
        return frame.group_by(keys).agg(*columns)

    task = (pl.col("owner") == "task") & (pl.col("event") == "context-switches")
    cgroups = by(
        fabric.filter(task & pl.col("cgroup").is_not_null()), ["cgroup", "cgroup_id"], value
    )
    cgroups = cgroups.with_columns(pl.col("cgroup").cast(pl.String))
    clock = fabric.filter(pl.col("event") == "cpu-clock")
    clock = clock.with_columns(second=pl.col("ts").dt.epoch("us") // 1_000_000)
    joined = fabric.join(counters, on=["counter", "host", "boot_id"], suffix="_of")
    keys = ["pmu_of", "event_of", "config", "cpu_of", "host"]
    confidence = pl.col("confidence").cast(pl.Float64)
    answers = [
        by(
            fabric,
            ["subsystem", "unit"],
            pl.len(),
            pl.col("value").count().alias("counted"),
            value,
        ),
        cgroups.sort(["value", "cgroup"], descending=[True, False]).head(5),
        by(clock, ["second"], value),
        by(joined, keys, sum_of(pl.col("value") / pl.col("scale")).alias("raw")),
        by(
            fabric,
            ["method", "owner"],
            pl.len(),
            confidence.count(),
            sum_of(confidence * pl.col("value")).alias("product"),
            value,
        ),
    ]
    answers = {name: answer.rows() for name, answer in zip(QUESTIONS, answers)}
    for table, columns in tables.items():
        row = [len(frames[table])]
        for column, kind in columns.items():
            its = frames[table][column]
            if kind == "time":
                its = its.dt.epoch("us")
            if kind in ("integer", "time"):
                row += [its.min(), its.max()]
            elif kind == "real":
                row += [its.count(), its.cast(pl.Float64).sum() if its.count() else None]
            else:
                length = its.cast(pl.String).str.len_chars()
                row += [its.count(), length.sum() if its.count() else None]
        answers[EVERY + table] = [row]
    return answers


def pandas(directory, tables):
    import pandas as pd

    frames = {table: pd.read_parquet(directory / f"{table}.parquet") for table in tables}
    fabric, counters = frames["fabric"], frames["counters"]

    def by(frame, keys, **columns):
        return frame.groupby(keys, observed=True).agg(**columns).reset_index()

    def sum_of(column):
        return (column, lambda values: values.sum(min_count=1))

    task = fabric[(fabric.owner == "task") & (fabric.event == "context-switches")]
    cgroups = by(task.dropna(subset=["cgroup"]), ["cgroup", "cgroup_id"], sum=sum_of("value"))
    cgroups["cgroup"] = cgroups.cgroup.astype(str)
    cgroups["cgroup_id"] = cgroups.cgroup_id.astype("int64")
    clock = fabric[fabric.event == "cpu-clock"]
    clock = clock.assign(second=micros(clock.ts) // 1_000_000)
    for column in ("host", "boot_id"):
        fabric[column] = fabric[column].astype(str)
        counters[column] = counters[column].astype(str)
    joined = fabric.merge(counters, on=["counter", "host", "boot_id"], suffixes=("", "_of"))
    joined["raw"] = joined.value / joined.scale
    fabric["product"] = fabric.confidence.astype("float64") * fabric.value
    answers = [
        by(
            fabric,
            ["subsystem", "unit"],
            rows=("counter", "size"),
            counted=("value", "count"),
            sum=sum_of("value"),
        ),
        cgroups.sort_values(["sum", "cgroup"], ascending=[False, True]).head(5),
        by(clock, ["second"], sum=sum_of("value")),
        by(joined, ["pmu_of", "event_of", "config", "cpu_of", "host"], sum=sum_of("raw")),
        by(
            fabric,
            ["method", "owner"],
            rows=("counter", "size"),
            sure=("confidence", "count"),
            product=sum_of("product"),
            sum=sum_of("value"),
        ),
    ]
    answers = {
        name: list(answer.itertuples(index=False, name=None))
        for name, answer in zip(QUESTIONS, answers)
    }
    for table, columns in tables.items():
        frame = frames[table]
        row = [len(frame)]
        for column, kind in columns.items():
            its = frame[column].dropna()
            if kind == "time":
                its = micros(its)
            if kind in ("integer", "time"):
                row += [int(its.min()), int(its.max())] if len(its) else [None, None]
            elif kind == "real":
                row += [len(its), float(its.astype("float64").sum()) if len(its) else None]
            else:
                row += [len(its), int(its.astype(str).str.len().sum()) if len(its) else None]
        answers[EVERY + table] = [row]
    return answers


def micros(times):
    """Microseconds since 1970."""
    import pandas as pd

    return (times - pd.Timestamp(0, tz="UTC")) // pd.Timedelta(1, "us")


def keys(row):
    """The sort key of a row: all columns except sums, which differ by rounding."""
    return [str(cell) for cell in row if not isinstance(cell, float)]


def plain(cell):
    """A cell as a JSON value: every reader has its own types for numbers and nulls."""
    if hasattr(cell, "item"):
        cell = cell.item()
    if isinstance(cell, float) and cell != cell:
        return None
    return cell if cell is None or isinstance(cell, (int, float, str)) else str(cell)


def main():
    match sys.argv[1:]:
        case ["schema", directory]:
            answer = schema(pathlib.Path(directory))
        case [engine, directory, tables] if engine in ENGINES:
            tables = json.loads(pathlib.Path(tables).read_text())
            answers = ENGINES[engine](pathlib.Path(directory), tables)
            answer = {
                name: [[plain(cell) for cell in row] for row in rows]
                for name, rows in answers.items()
            }
            for name, rows in answer.items():
                if name != ORDERED:
                    rows.sort(key=keys)
        case other:
            sys.exit(f"unknown: {other}")
    json.dump(answer, sys.stdout)


ENGINES = {"duckdb": duckdb, "chdb": chdb, "spark": spark, "polars": polars, "pandas": pandas}
if __name__ == "__main__":
    main()
