"""Asks the roll-ups in a bucket with SQL of DuckDB, which needs no extension for that: pyarrow reads them.

    bucket.py BUCKET[/PREFIX] SQL [--endpoint http://HOST:PORT]
    bucket.py fleet "SELECT host, sum(value) FROM rollup GROUP BY host"

The table is `rollup`, with the columns date and hour of the path. Credentials come from the
environment or the instance. Files of several versions are read with the columns of the newest.
"""

import argparse
import urllib.parse

import duckdb
import pyarrow
import pyarrow.dataset
import pyarrow.fs


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bucket")
    parser.add_argument("sql")
    parser.add_argument("--endpoint", help="address of a store that is not Amazon's")
    arguments = parser.parse_args()
    options = {}
    if arguments.endpoint:
        url = urllib.parse.urlparse(arguments.endpoint)
        options = {"endpoint_override": url.netloc, "scheme": url.scheme}
    store = pyarrow.fs.S3FileSystem(**options)
    # The files have the cluster too.
    path = pyarrow.dataset.partitioning(
        pyarrow.schema([("date", pyarrow.date32()), ("hour", pyarrow.int32())]), flavor="hive"
    )
    files = pyarrow.dataset.dataset(arguments.bucket, filesystem=store, format="parquet")
    schemas = [fragment.physical_schema.remove_metadata() for fragment in files.get_fragments()]
    schema = pyarrow.unify_schemas([*schemas, path.schema])
    rollup = pyarrow.dataset.dataset(
        arguments.bucket, filesystem=store, format="parquet", partitioning=path, schema=schema
    )
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("rollup", rollup)
    print(connection.sql(arguments.sql))


main()
