-- What is this tenant's bill: GB by link, from when to when, with an interval?
--
-- {cluster}      north
-- {from} {to}    first and last day: 2026-11-01, 2026-11-30 (UTC)
-- {tenant}       namespace of its pods: team-07
--
-- subsystem, link, direction
-- hosts          number of hosts
-- gb             bytes, 10^9
-- low_gb, high_gb  90 % interval. The half widths of all rows are added: right for any correlation of the
--                errors, and wide
-- low_gb_independent, high_gb_independent  the half widths of rows of one host are added, those of different
--                hosts are added in squares: narrower by up to the root of the number of hosts. That is right
--                only if errors of different hosts are independent. If one program runs on all of them with
--                the same error on each, it is too narrow: bill by low_gb and high_gb
-- unknown_rows   rows of windows in which the counter could not be read: not in the sums
--
-- A row of an older file without an interval counts with the interval from 0 to its counter's total.
WITH hosts AS (
    SELECT
        subsystem,
        link,
        direction,
        host,
        sum(value) AS bytes,
        sum(CASE WHEN value IS NOT NULL THEN coalesce(low, 0) END) AS low,
        sum(CASE WHEN value IS NOT NULL THEN coalesce(high, total) END) AS high,
        sum(CASE WHEN value IS NULL THEN 1 ELSE 0 END) AS unknown_rows
    FROM rollup
    WHERE cluster = '{cluster}' AND date BETWEEN DATE '{from}' AND DATE '{to}'
        AND unit = 'bytes' AND link IS NOT NULL AND pod LIKE '{tenant}/%'
    GROUP BY subsystem, link, direction, host
),
reaches AS (
    SELECT
        *,
        bytes - low AS down,
        high - bytes AS up
    FROM hosts
),
links AS (
    SELECT
        subsystem,
        link,
        direction,
        count(*) AS hosts,
        sum(bytes) AS bytes,
        sum(down) AS all_down,
        sum(up) AS all_up,
        sqrt(sum(down * down)) AS down_independent,
        sqrt(sum(up * up)) AS up_independent,
        sum(unknown_rows) AS unknown_rows
    FROM reaches
    GROUP BY subsystem, link, direction
)
SELECT
    subsystem,
    link,
    direction,
    hosts,
    bytes / 1e9 AS gb,
    (bytes - all_down) / 1e9 AS low_gb,
    (bytes + all_up) / 1e9 AS high_gb,
    (bytes - down_independent) / 1e9 AS low_gb_independent,
    (bytes + up_independent) / 1e9 AS high_gb_independent,
    unknown_rows
FROM links
ORDER BY subsystem, link, direction;
