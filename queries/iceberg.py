"""Registers roll-ups in an Iceberg table, without copying them.

    iceberg.py CATALOG WAREHOUSE FILE...
    iceberg.py sqlite:////var/lib/iceberg/catalog.db file:///bucket /bucket/compact/cluster=north/.../*.parquet

CATALOG is a SQL catalog; with another kind (REST, Glue, Hive) only `catalog` changes. The table
`uncore_trace.rollup` is made where there is none: partitioned by `cluster` and by the hour of `ts`, as the
directories are. A file that the table has already is refused. A column that the files have and the table
has not is added to the table; one that a file lacks is null.

Iceberg takes the partition of a file from the statistics of these two columns. A file without those would
be in the partition null, where no question about a cluster finds it: it is refused. Times are microseconds:
those in nanoseconds are not in version 2 of the format, and such a file is refused too.
"""

import argparse

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.transforms import HourTransform

TABLE = "uncore_trace.rollup"
PARTITION = ["cluster", "ts"]


def catalog(uri, warehouse):
    return SqlCatalog("uncore_trace", uri=uri, warehouse=warehouse)


def schema(file):
    """The columns of a file; each may be null, as one is that an older file lacks."""
    fields = []
    for field in pq.read_schema(file).remove_metadata():
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        fields.append(pa.field(field.name, kind, nullable=True))
    return pa.schema(fields)


def refuse(file):
    """A file whose statistics do not determine its partition."""
    metadata = pq.read_metadata(file)
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for place in range(group.num_columns):
            column = group.column(place)
            if column.path_in_schema in PARTITION and not (
                column.is_stats_set and column.statistics.has_min_max
            ):
                raise SystemExit(
                    f"iceberg: {file}: {column.path_in_schema} has no statistics, so its partition is"
                    " not known: compact it first (queries/compact.py)"
                )


def register(catalog, files):
    """Adds files to the table and returns it."""
    for file in files:
        refuse(file)
    try:
        table = catalog.load_table(TABLE)
    except NoSuchTableError:
        catalog.create_namespace_if_not_exists(TABLE.split(".")[0])
        table = catalog.create_table(TABLE, schema=schema(files[0]))
        with table.update_spec() as spec:
            spec.add_identity("cluster")
            spec.add_field("ts", HourTransform(), "hour")
    for one in {file_schema.to_string(): file_schema for file_schema in map(schema, files)}.values():
        with table.update_schema() as update:
            update.union_by_name(one)
    table.add_files([str(file) for file in files])
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("catalog", "warehouse"):
        parser.add_argument(name)
    parser.add_argument("files", nargs="+")
    args = parser.parse_args()
    register(catalog(args.catalog, args.warehouse), args.files)
    print(f"{len(args.files)} files are in {TABLE}")


if __name__ == "__main__":
    main()
