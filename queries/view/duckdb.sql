-- The view for the questions: all roll-ups below a directory or a bucket.
--
-- {root}   /var/lib/uncore-trace/rollup, s3://bucket/prefix
-- {files}  cluster=*/date=*/hour=*/host=*/*_*.parquet, without host=*/ of large files; narrower where
--          there are very many: with union_by_name DuckDB reads the footer of each file that the pattern matches
--          before it leaves any out
--
-- Of a file of a host, cluster and host are those of its path, whatever its rows say.
-- Files of several versions of the schema: a column that a file lacks is null in its rows.
CREATE OR REPLACE VIEW rollup AS
SELECT * FROM read_parquet(
    '{root}/{files}',
    union_by_name = true,
    hive_partitioning = true,
    hive_types_autocast = false,
    hive_types = {'cluster': VARCHAR, 'date': DATE, 'hour': INTEGER}
);
