"""The frame for the questions: all roll-ups below a directory or a bucket.

Polars' SQL has `read_parquet('...')`, and no way to say which columns there may be. So the frame is made
here, and `pl.SQLContext(rollup=rollup(root)).execute(query)` asks it.
"""

import polars as pl

TEXT = [
    "host", "boot_id", "cluster", "subsystem", "link", "direction", "peak_direction", "pmu", "event", "filter", "unit",
    "owner", "comm", "cgroup", "container", "pod", "job", "method",
]  # fmt: skip
SCHEMA = {
    "ts": pl.Datetime("us", "UTC"),
    **{name: pl.Int64 for name in ("mono_ns", "window_ns", "known_ns")},
    **{name: pl.String for name in TEXT},
    "socket": pl.Int16,
    "number": pl.Int32,
    **{name: pl.Float64 for name in ("peak", "value", "low", "high", "total")},
    **{name: pl.Float32 for name in ("running", "confidence")},
}


def rollup(root, files=("cluster=*/date=*/hour=*/host=*/*_*.parquet",)):
    """A column that a file lacks is null in its rows; one that is not in `SCHEMA` is left out. Of a file of a host,
    cluster and host are those of its path, whatever its rows say. Large files have no host in their paths."""
    path = {"cluster": pl.String, "date": pl.Date, "hour": pl.Int32}
    if "/host=" in files[0]:
        path["host"] = pl.String
    return pl.scan_parquet(
        [f"{root}/{file}" for file in files],
        schema=SCHEMA | {"date": pl.Date, "hour": pl.Int32},
        hive_partitioning=True,
        hive_schema=path,
        missing_columns="insert",
        extra_columns="ignore",
        # Polars reads dictionaries of strings as categories.
        cast_options=pl.ScanCastOptions(categorical_to_string="allow"),
    )
