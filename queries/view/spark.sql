-- The view for the questions: all roll-ups below a directory or a bucket.
--
-- {root}   /var/lib/uncore-trace/rollup, s3a://bucket/prefix
-- {files}  cluster=*/date=*/hour=*/host=*/*_*.parquet, without host=*/ of large files; or narrower
--
-- Files of several versions of the schema: a column that a file lacks is null in its rows. With the
-- columns in the statement, no file is opened to find them. Of a file of a host, cluster and host are those of its
-- path, whatever its rows say. Times are shown in spark.sql.session.timeZone.
CREATE OR REPLACE TEMPORARY VIEW rollup (
    ts TIMESTAMP, mono_ns BIGINT, window_ns BIGINT, known_ns BIGINT, host STRING, boot_id STRING,
    cluster STRING, socket SMALLINT, subsystem STRING, link STRING, direction STRING, peak DOUBLE, peak_direction STRING,
    pmu STRING, event STRING, filter STRING, unit STRING, owner STRING, number INT, comm STRING,
    cgroup STRING, container STRING, pod STRING, job STRING, value DOUBLE, low DOUBLE, high DOUBLE,
    total DOUBLE, running FLOAT, method STRING, confidence FLOAT, date DATE, hour INT
) USING parquet OPTIONS (path '{root}/{files}', basePath '{root}');
