"""Registers roll-ups in an Iceberg table, without copying them.

    iceberg.py CATALOG WAREHOUSE ROOT [--files PATTERN]
    iceberg.py sqlite:////srv/catalog.db s3://fleet/iceberg s3://fleet/large

CATALOG is the URI of any catalog of pyiceberg: http://... of a REST catalog, sqlite or postgresql of a SQL
catalog. Its other properties are those of pyiceberg, such as PYICEBERG_CATALOG__UNCORE_TRACE__CREDENTIAL of the
environment. ROOT is a directory or a bucket (store.py). Where it has manifests of `compact.py`, what they name is
registered, else what matches. Files that the table has already are left out; the others are added in one snapshot:
readers of the table see all of them or none.

The table `uncore_trace.rollup` is made where there is none: partitioned by `cluster` and by the hour of `ts`, as the
directories are. A column that the files have and the table has not is added to the table; one that a file lacks is
null.

Iceberg takes the partition of a file from the statistics of these two columns. A file without those would
be in the partition null, where no question about a cluster finds it: it is refused. Times are microseconds:
those in nanoseconds are not in version 2 of the format, and such a file is refused too.
"""

import argparse
import os

import pyarrow as pa
import pyarrow.parquet as pq
import store
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.transforms import HourTransform

TABLE = "uncore_trace.rollup"
# As variables of the environment name it: PYICEBERG_CATALOG__UNCORE_TRACE__CREDENTIAL.
NAME = "uncore-trace"
PARTITION = ["cluster", "ts"]


def catalog(uri, warehouse):
    """The credentials are those of the environment."""
    known = {"s3.endpoint": "AWS_ENDPOINT_URL", "s3.region": "AWS_REGION"}
    known = {name: os.environ[it] for name, it in known.items() if it in os.environ}
    return load_catalog(NAME, uri=uri, warehouse=warehouse, **known)


def footer(url):
    """The footer of a file, whose statistics determine its partition."""
    # The file itself is the root: names in it are as they are.
    root = store.Root(url)
    metadata = pq.read_metadata(root.path, filesystem=root.files)
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for place in range(group.num_columns):
            column = group.column(place)
            if column.path_in_schema in PARTITION and not (
                column.is_stats_set and column.statistics.has_min_max
            ):
                raise SystemExit(
                    f"iceberg: {url}: {column.path_in_schema} has no statistics, so its partition is"
                    " not known: compact it first (queries/compact.py)"
                )
    return metadata


def schema(metadata):
    """The columns of a file; each may be null, as one is that an older file lacks."""
    fields = []
    for field in metadata.schema.to_arrow_schema().remove_metadata():
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        fields.append(pa.field(field.name, kind, nullable=True))
    return pa.schema(fields)


def register(catalog, files):
    """Adds the files that the table has not; returns the table and their number."""
    try:
        table = catalog.load_table(TABLE)
        known = set(table.inspect.data_files()["file_path"].to_pylist())
    except NoSuchTableError:
        table, known = None, set()
    files = [str(file) for file in files if str(file) not in known]
    if not files:
        return table, 0
    schemas = [schema(metadata) for metadata in store.each(footer, files)]
    if table is None:
        catalog.create_namespace_if_not_exists(TABLE.split(".")[0])
        table = catalog.create_table(TABLE, schema=schemas[0])
        with table.update_spec() as spec:
            spec.add_identity("cluster")
            spec.add_field("ts", HourTransform(), "hour")
    for one in {it.to_string(): it for it in schemas}.values():
        with table.update_schema() as update:
            update.union_by_name(one)
    table.add_files(files)
    return table, len(files)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("catalog", "warehouse", "root"):
        parser.add_argument(name)
    parser.add_argument("--files", default=store.FILES)
    args = parser.parse_args()
    files = store.Root(args.root).matching(args.files)
    _, added = register(catalog(args.catalog, args.warehouse), files)
    print(f"{added} of {len(files)} files were added to {TABLE}")


if __name__ == "__main__":
    main()
