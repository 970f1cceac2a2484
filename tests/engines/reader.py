"""Reads Parquet files with one reader, of any version, with its default options.

`reader.py kinds FILE...` writes the kind of each column of each file, as PyArrow reads them. `reader.py READER KINDS`
reads these files with duckdb, datafusion, polars, pyarrow, pandas or fastparquet, and writes for each file the number
of its rows, and for each column its values that are not null and their sum, as JSON. Sums of integers are text, because
they may have more than 64 bits. Of times they are in microseconds since 1970, of text the number of characters.
"""

import json
import sys
from decimal import Decimal


def kinds(files):
    import pyarrow.parquet as pq
    import pyarrow.types as types

    def kind(field):
        if types.is_dictionary(field) or types.is_string(field):
            return "text"
        if types.is_timestamp(field):
            return "time"
        return "real" if types.is_floating(field) else "integer"

    return {file: {field.name: kind(field.type) for field in pq.read_schema(file)} for file in files}


def summed(columns, values):
    """Of a reader that gives the values of a column, without nulls, as a list."""
    found = {}
    for column, kind in columns.items():
        numbers = values(column, kind)
        if kind != "real":
            numbers = [len(value) if kind == "text" else int(value) for value in numbers]
        found[column] = [len(numbers), sum(numbers)]
    return found


def asked(columns, ask, source, micros, whole):
    """Of a reader that speaks SQL."""
    terms = []
    for column, kind in columns.items():
        value = {"text": f"length({column})", "time": micros.format(column)}.get(kind, column)
        value = value if kind == "real" else f"CAST({value} AS {whole})"
        terms += [f"count({column})", f"sum({value})"]
    rows, *cells = ask(f"SELECT count(*), {', '.join(terms)} FROM {source}")
    return rows, {column: list(pair) for column, pair in zip(columns, zip(cells[::2], cells[1::2]))}


def duckdb(file, columns):
    import duckdb

    def ask(query):
        return duckdb.execute(query).fetchall()[0]

    # Of the lengths of no words the sum has no value here, and is 0 elsewhere.
    return asked(columns, ask, f"'{file}'", "epoch_us({})", "HUGEINT")


def datafusion(file, columns):
    from datafusion import SessionContext

    context = SessionContext()
    context.register_parquet("source", file)

    def ask(query):
        (batch,) = [batch for batch in context.sql(query).collect() if batch.num_rows]
        return [column[0].as_py() for column in batch.columns]

    return asked(columns, ask, "source", "CAST({} AS BIGINT)", "DECIMAL(38, 0)")


def polars(file, columns):
    import polars as pl

    frame = pl.read_parquet(file)

    def values(column, kind):
        series = frame[column].drop_nulls()
        if kind == "time":
            series = series.dt.epoch("us")
        return (series.cast(pl.String) if kind == "text" else series).to_list()

    return len(frame), summed(columns, values)


def pyarrow(file, columns):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(file)

    def values(column, kind):
        array = table[column].drop_null()
        return (array.cast(pa.int64()) if kind == "time" else array).to_pylist()

    return len(table), summed(columns, values)


def pandas(file, columns, engine="pyarrow"):
    import pandas as pd

    frame = pd.read_parquet(file, engine=engine)

    def values(column, kind):
        series = frame[column].dropna()
        if kind == "time":
            # fastparquet leaves the time zone out.
            zone = "UTC" if series.dt.tz else None
            series = (series - pd.Timestamp(0, tz=zone)) // pd.Timedelta(1, "us")
        return series.tolist()

    return len(frame), summed(columns, values)


def fastparquet(file, columns):
    return pandas(file, columns, "fastparquet")


def plain(cell):
    return str(cell) if isinstance(cell, (int, Decimal)) else cell


def main():
    match sys.argv[1:]:
        case ["kinds", *files]:
            answer = kinds(files)
        case [reader, listed] if reader in READERS:
            answer = {}
            with open(listed) as text:
                files = json.load(text)
            for file, columns in files.items():
                rows, sums = READERS[reader](file, dict(sorted(columns.items())))
                answer[file] = [["rows", str(rows)]]
                answer[file] += [[column, str(count), plain(total or 0)] for column, (count, total) in sums.items()]
        case unknown:
            sys.exit(f"unknown: {unknown}")
    json.dump(answer, sys.stdout)


READERS = {
    "duckdb": duckdb,
    "datafusion": datafusion,
    "polars": polars,
    "pyarrow": pyarrow,
    "pandas": pandas,
    "fastparquet": fastparquet,
}
if __name__ == "__main__":
    main()
