-- The view for the questions: all roll-ups below a directory.
--
-- {root}   /var/lib/uncore-trace/rollup. Of a bucket: s3('https://.../{files}', 'Parquet', ...) in place of file
-- {files}  cluster=*/date=*/hour=*/host=*/*_*.parquet, without host=*/ of large files; or narrower
--
-- Files of several versions of the schema: a column that a file lacks is null in its rows. With the
-- columns in the statement, no file is opened to find them. Of a file of a host, cluster and host are those of its
-- path, as they are written there, whatever its rows say.
CREATE OR REPLACE VIEW rollup AS
SELECT * FROM file(
    '{root}/{files}',
    'Parquet',
    '
    ts Nullable(DateTime64(6, ''UTC'')), mono_ns Nullable(Int64), window_ns Nullable(Int64),
    known_ns Nullable(Int64), host Nullable(String), boot_id Nullable(String), cluster String,
    socket Nullable(Int16), subsystem Nullable(String), link Nullable(String),
    direction Nullable(String), peak Nullable(Float64), peak_direction Nullable(String), pmu Nullable(String),
    event Nullable(String), filter Nullable(String), unit Nullable(String),
    owner Nullable(String), number Nullable(Int32), comm Nullable(String),
    cgroup Nullable(String), container Nullable(String), pod Nullable(String), job Nullable(String),
    value Nullable(Float64), low Nullable(Float64), high Nullable(Float64),
    total Nullable(Float64), running Nullable(Float32), method Nullable(String),
    confidence Nullable(Float32), date Date, hour Int32
    '
);
