-- Which versions of the schema are there, and what do older files lack?
--
-- {root} {files}  as in view/duckdb.sql
--
-- rollup_version, tool_version  as in the files; null if they have none, such as files that Spark compacted
-- files                         number of files
-- lacks                         columns that other files have and these lack: null in the rows of these
WITH columns AS (
    SELECT file_name, name FROM parquet_schema('{root}/{files}') WHERE type IS NOT NULL
),
pairs AS (
    SELECT file_name, decode(key) AS key, decode(value) AS value
    FROM parquet_kv_metadata('{root}/{files}')
),
lacking AS (
    SELECT one.file_name, string_agg(every.name, ', ' ORDER BY every.name) AS lacks
    FROM (SELECT DISTINCT file_name FROM columns) AS one
    CROSS JOIN (SELECT DISTINCT name FROM columns) AS every
    WHERE NOT EXISTS (
        FROM columns WHERE columns.file_name = one.file_name AND columns.name = every.name
    )
    GROUP BY one.file_name
)
SELECT
    rollup.value AS rollup_version,
    tool.value AS tool_version,
    count(*) AS files,
    coalesce(lacks, '') AS lacks
FROM (SELECT DISTINCT file_name FROM columns) AS every
LEFT JOIN pairs AS rollup
    ON rollup.file_name = every.file_name AND rollup.key = 'uncore_trace.rollup_version'
LEFT JOIN pairs AS tool
    ON tool.file_name = every.file_name AND tool.key = 'uncore_trace.tool_version'
LEFT JOIN lacking ON lacking.file_name = every.file_name
GROUP BY ALL
ORDER BY ALL;
