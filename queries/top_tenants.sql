-- Who moved most in this cluster on this day?
--
-- {cluster} {date}  north, 2026-11-17 (UTC)
-- {limit}           number of tenants of each subsystem
--
-- subsystem    mem, pcie, c2c, mesh: separate, because a byte from a disk is also one of the memory
-- place        1 moved most
-- tenant       namespace of the pod; else container, cgroup, interrupt, device or what else the owner is
-- hosts        number of hosts
-- gb           bytes over links, both directions, 10^9
-- low_gb, high_gb  90 % interval of gb
-- percent      its percentage of the subsystem's bytes in the cluster
WITH hosts AS (
    SELECT
        subsystem,
        coalesce(split_part(pod, '/', 1), container, cgroup, comm, owner) AS tenant,
        host,
        sum(value) AS bytes,
        sum(CASE WHEN value IS NOT NULL THEN coalesce(low, 0) END) AS low,
        sum(CASE WHEN value IS NOT NULL THEN coalesce(high, total) END) AS high
    FROM rollup
    WHERE cluster = '{cluster}' AND date = DATE '{date}' AND unit = 'bytes' AND link IS NOT NULL
    GROUP BY subsystem, coalesce(split_part(pod, '/', 1), container, cgroup, comm, owner), host
),
tenants AS (
    SELECT
        subsystem,
        tenant,
        count(*) AS hosts,
        sum(bytes) AS bytes,
        sum(low) AS low,
        sum(high) AS high
    FROM hosts
    GROUP BY subsystem, tenant
),
ranked AS (
    SELECT
        *,
        row_number() OVER (PARTITION BY subsystem ORDER BY bytes DESC, tenant) AS place,
        sum(bytes) OVER (PARTITION BY subsystem) AS every
    FROM tenants
)
SELECT
    subsystem,
    place,
    tenant,
    hosts,
    bytes / 1e9 AS gb,
    low / 1e9 AS low_gb,
    high / 1e9 AS high_gb,
    100 * bytes / nullif(every, 0) AS percent
FROM ranked
WHERE place <= {limit}
ORDER BY subsystem, place;
