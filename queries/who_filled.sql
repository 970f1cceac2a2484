-- Who filled this link in this hour?
--
-- {cluster} {date} {hour} {host}  where and when: north, 2026-11-17, 10 (UTC), node-0007
-- {link} {direction}              as `link` and `direction` of the rows: PCIe nvme0n1, in
--
-- tenant       pod; else container, cgroup, interrupt, device or what else the owner is
-- gb           bytes of the tenant on the link, 10^9
-- low_gb, high_gb  90 % interval of gb
-- percent      its percentage of the known bytes of the link
-- confidence   mean confidence of its rows, weighted by bytes, 0 to 1; null if they have none
WITH tenants AS (
    SELECT
        coalesce(pod, container, cgroup, comm, owner) AS tenant,
        sum(value) AS bytes,
        sum(CASE WHEN value IS NOT NULL THEN coalesce(low, 0) END) AS low,
        sum(CASE WHEN value IS NOT NULL THEN coalesce(high, total) END) AS high,
        sum(confidence * value) AS sure,
        sum(CASE WHEN confidence IS NOT NULL THEN value END) AS claimed
    FROM rollup
    WHERE cluster = '{cluster}' AND date = DATE '{date}' AND hour = {hour} AND host = '{host}'
        AND link = '{link}' AND direction = '{direction}' AND unit = 'bytes'
    GROUP BY coalesce(pod, container, cgroup, comm, owner)
)
SELECT
    tenant,
    bytes / 1e9 AS gb,
    low / 1e9 AS low_gb,
    high / 1e9 AS high_gb,
    100 * bytes / sum(bytes) OVER () AS percent,
    sure / nullif(claimed, 0) AS confidence
FROM tenants
ORDER BY gb DESC, tenant;
