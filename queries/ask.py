"""Asks the roll-ups of a fleet one of the questions here.

    ask.py ENGINE QUESTION ROOT [--files PATTERN] NAME=VALUE...
    ask.py duckdb bill /var/lib/uncore-trace/rollup cluster=north from=2026-11-01 to=2026-11-30 tenant=team-07
    ask.py duckdb "SELECT host, sum(value) FROM rollup GROUP BY host" s3://fleet/prefix

ENGINE is duckdb, clickhouse (chdb), spark or polars; QUESTION is SQL or a file `*.sql` beside this
one, whose head lists its parameters and the columns of its answer. The files are in DuckDB's SQL; `--show` prints the
query for the engine. The answer is tab separated. ROOT is the directory or bucket above `cluster=...`; store.py lists
the settings of a bucket. Large files are read if their manifests name them. PATTERN selects the files of hosts; without
PATTERN, the values select them: a question about a host reads the files below the name of the host.
"""

import argparse
import datetime
import importlib.util
import json
import os
import pathlib
import re
import sys

import layout
import store
from store import FILES

HERE = pathlib.Path(__file__).parent
# The address of a store that is not Amazon's.
ENDPOINT = os.environ.get("AWS_ENDPOINT_URL", "")

# Differences in the dialects of the other engines.
DIALECTS = {
    "duckdb": {},
    "clickhouse": {
        r"\bDATE '": "'",
        r"TIMESTAMPTZ '(.*?)\+00'": r"toDateTime64('\1', 6, 'UTC')",
        r"split_part\(": "substringIndex(",
    },
    "spark": {r"TIMESTAMPTZ '(.*?)\+00'": r"TIMESTAMP '\1+00:00'"},
    "polars": {r"TIMESTAMPTZ '(.*?)\+00'": r"'\1'"},
}

# Text outside of quotes in the questions.
NUMBERS = {"hour", "limit", "percent", "seconds"}


def fill(text, values):
    """A query with its parameters. Values become part of the SQL: none may end a string in it."""
    for name, value in values.items():
        if re.search(r"['\\{}]", str(value)):
            raise SystemExit(f"ask: {name}={value}: no quotes, backslashes or braces in a value")
        if name in NUMBERS and not re.fullmatch(r"\d+(\.\d+)?", str(value)):
            raise SystemExit(f"ask: {name}={value}: it is a number")

    def of(match):
        if match[1] not in values:
            raise SystemExit(f"ask: the question needs {match[1]}=...: see the head of its file")
        return str(values[match[1]])

    # Comments name the parameters too.
    code = re.sub(r"^\s*--.*\n", "", text, flags=re.MULTILINE)
    return re.sub(r"\{(\w+)\}", of, code).strip().rstrip(";")


def quoted(text):
    """A text in SQL: paths and names of clusters may have quotes."""
    return "'" + str(text).replace("'", "''") + "'"


def question(engine, name, values):
    """A question of this directory in the dialect of the engine."""
    if " " in name:
        return name
    path = HERE / f"{name}.sql"
    if not path.exists():
        known = sorted(it.stem for it in HERE.glob("*.sql"))
        raise SystemExit(f"ask: no question {name}: {', '.join(known)}")
    return fill(dialect(engine, path.read_text()), values)


def dialect(engine, text):
    for pattern, replacement in DIALECTS[engine].items():
        text = re.sub(pattern, replacement, text)
    return text


def view(engine, root, files=FILES):
    """The view of an engine on what matches below a root, or on what the manifests there name."""
    text = (HERE / f"view/{engine}.sql").read_text()
    named = store.Root(root).named(files)
    if named:
        named = [fill("{it}", {"it": it}) for it in named]
        listed = ", ".join(f"'{{root}}/{it}'" for it in named)
        braces = f"{{{','.join(named)}}}"
        text = text.replace("'{root}/{files}'", f"[{listed}]") if engine == "duckdb" else text
        text = text.replace("{files}", braces)
    if engine == "clickhouse" and root.startswith("s3://"):
        # In an address `%` is the beginning of a byte.
        text = text.replace("FROM file(", "FROM s3(").replace("%", "%25")
        root = address(root).replace("%", "%25")
        files = files.replace("%", "%25")
    return fill(text, {"root": root, "files": files})


def address(root):
    """A bucket as ClickHouse names it. It takes the credentials from the environment."""
    bucket, _, prefix = root.removeprefix("s3://").partition("/")
    region = os.environ.get("AWS_REGION", "us-east-1")
    host = f"{ENDPOINT}/{bucket}" if ENDPOINT else f"https://{bucket}.s3.{region}.amazonaws.com"
    return f"{host}/{prefix}".rstrip("/")


def reach(connection, root):
    """Lets DuckDB read a bucket: with httpfs where it is installed, else with pyarrow."""
    import duckdb

    keys = {
        "KEY_ID": os.environ.get("AWS_ACCESS_KEY_ID"),
        "SECRET": os.environ.get("AWS_SECRET_ACCESS_KEY"),
        "SESSION_TOKEN": os.environ.get("AWS_SESSION_TOKEN"),
        "REGION": os.environ.get("AWS_REGION"),
    }
    if ENDPOINT:
        secure, _, host = ENDPOINT.partition("://")
        keys |= {"ENDPOINT": host, "URL_STYLE": "path", "USE_SSL": str(secure == "https").lower()}
    try:
        connection.execute("LOAD httpfs")
        has_httpfs = keys["KEY_ID"] is not None
    except duckdb.Error:
        has_httpfs = False
    if has_httpfs:
        pairs = [f"{name} {quoted(value)}" for name, value in keys.items() if value]
        connection.execute(f"CREATE SECRET (TYPE s3, {', '.join(pairs)})")
        return
    from fsspec.implementations.arrow import ArrowFSWrapper
    from pyarrow import fs

    # An error within DuckDB would be of many lines.
    store.objects(root.removeprefix("s3://").split("/")[0])

    known = {}

    class Bucket(ArrowFSWrapper):
        """DuckDB opens a file several times. What a listing says of it is not asked again."""

        protocol = ("s3",)

        @classmethod
        def _strip_protocol(cls, path):
            # As it is: names have %XX.
            return str(path).removeprefix("s3://").rstrip("/")

        def _make_entry(self, info):
            entry = super()._make_entry(info)
            known[entry["name"]] = entry
            return entry

        def info(self, path, **options):
            return known.get(self._strip_protocol(path)) or super().info(path, **options)

        def modified(self, path):
            return self.info(path)["mtime"]

        def glob(self, path, **options):
            # By one listing. fsspec has one for each directory, as each host is.
            path = self._strip_protocol(path)
            found = self.fs.get_file_info(fs.FileSelector(layout.above(path), allow_not_found=True, recursive=True))
            names = [self._make_entry(it)["name"] for it in found]
            return sorted(it for it in names if layout.matches(it, path))

        def _open(self, path, *args, **options):
            return store.Object(path, self.info(path)["size"])

    connection.register_filesystem(Bucket(store.Root(root).files))


class DuckDb:
    def __init__(self, root, files=FILES):
        import duckdb

        self.connection = duckdb.connect()
        # Times are shown in UTC, as their partitions are named.
        self.connection.execute("SET TimeZone = 'UTC'")
        if root.startswith("s3://"):
            reach(self.connection, root)
        try:
            self.connection.execute(view("duckdb", root, files))
        except duckdb.IOException as error:
            raise SystemExit(f"ask: {str(error).splitlines()[0]}") from error

    def ask(self, query):
        answer = self.connection.execute(query)
        return [column[0] for column in answer.description], answer.fetchall()


class ClickHouse:
    def __init__(self, root, files=FILES):
        from chdb import session

        self.session = session.Session()
        self.session.query(view("clickhouse", root, files))

    def json(self, query):
        return json.loads(self.session.query(query, "JSONCompact").bytes())

    def ask(self, query):
        answer = self.json(query)
        rows = [
            [
                number(cell) if column["type"].startswith(("Nullable(Decimal", "UInt64")) else cell
                for cell, column in zip(row, answer["meta"])
            ]
            for row in answer["data"]
        ]
        return [column["name"] for column in answer["meta"]], rows


def spark_session():
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false")
    session = session.config("spark.ui.showConsoleProgress", "false")
    session = session.config("spark.sql.session.timeZone", "UTC")
    session = session.config("spark.driver.memory", "2g")
    session = session.config("spark.sql.shuffle.partitions", "4").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


class Spark:
    def __init__(self, root, files=FILES):
        self.session = spark_session()
        self.session.sql(view("spark", root, files))

    def ask(self, query):
        frame = self.session.sql(query)
        return frame.columns, [list(row) for row in frame.collect()]


class Polars:
    def __init__(self, root, files=FILES):
        import polars

        path = HERE / "view/polars.py"
        spec = importlib.util.spec_from_file_location("rollup", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        if ENDPOINT.startswith("http://"):
            os.environ.setdefault("AWS_ALLOW_HTTP", "true")
        if root.startswith("s3://"):
            # It takes no `%` in a pattern for a bucket.
            files = re.sub(r"=[^/]*%[^/]*", "=*", files)
        files = store.Root(root).named(files) or [files]
        self.context = polars.SQLContext(rollup=module.rollup(root, files))

    def ask(self, query):
        answer = self.context.execute(query, eager=True)
        return answer.columns, [list(row) for row in answer.rows()]


ENGINES = {"duckdb": DuckDb, "clickhouse": ClickHouse, "spark": Spark, "polars": Polars}


def number(cell):
    """ClickHouse writes integers that a double cannot hold as strings."""
    return int(cell) if isinstance(cell, str) else cell


def plain(cell):
    """A cell as JSON has it; a time as text in UTC to the microsecond."""
    if isinstance(cell, datetime.datetime):
        if cell.tzinfo is None:
            return cell.isoformat(sep=" ", timespec="microseconds")
        return cell.astimezone(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S.%f")
    if isinstance(cell, float) and cell != cell:
        return None
    return cell if cell is None or isinstance(cell, (int, float, str)) else float(cell)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("question")
    parser.add_argument("root")
    parser.add_argument("--files", metavar="PATTERN")
    parser.add_argument("--show", action="store_true", help="print the SQL and ask nothing")
    parser.add_argument("values", nargs="*", metavar="NAME=VALUE")
    args = parser.parse_intermixed_args()
    for value in args.values:
        if "=" not in value:
            raise SystemExit(f"ask: {value}: write NAME=VALUE")
    values = dict(value.split("=", 1) for value in args.values)
    if args.files is None:
        args.files = layout.narrowed(values, args.engine)
        if store.Root(args.root).is_compacted():
            args.files = re.sub("/host=[^/]*", "", args.files)
    values |= {"root": args.root.rstrip("/"), "files": args.files}
    query = question(args.engine, args.question, values)
    if args.show:
        print(query)
        return
    columns, rows = ENGINES[args.engine](args.root, args.files).ask(query)
    print("\t".join(columns))
    for row in rows:
        print("\t".join("" if cell is None else str(plain(cell)) for cell in row))


if __name__ == "__main__":
    sys.exit(main())
