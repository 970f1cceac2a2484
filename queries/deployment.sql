-- What did this tenant, and all together, move before and after a deployment?
--
-- {cluster} {date}  north, 2026-11-17: the day of the deployment (UTC)
-- {tenant}          namespace of its pods: team-07. Its hosts are those on which it has rows
-- {from} {at} {to}  2026-11-17 10:20:00, 10:30:00 and 10:40:00 with the date, UTC: a window that ends at
--                   {at} or before it is before
--
-- subsystem, link, direction
-- hosts             number of hosts
-- before, after     GB/s of the tenant, the sum over its hosts, in the known time
-- before_low, before_high, after_low, after_high  90 % intervals of before and after
-- all_before, all_after  GB/s of all tenants on these hosts
--
-- If the intervals do not overlap, the rate has changed. They cover the error of the sum, not the variation
-- of the traffic over time.
WITH counted AS (
    -- For each counter and window the tenant's value and the total. The rows of a window sum to its total. If the
    -- agent was restarted, or a recording continued in another part, there are two such sets, each with its own
    -- known time; two with the same known time and total are one group, where the sum of values is twice the total.
    SELECT
        host,
        boot_id,
        subsystem,
        link,
        direction,
        pmu,
        event,
        filter,
        mono_ns,
        max(CASE WHEN ts > TIMESTAMPTZ '{at}+00' THEN 1 ELSE 0 END) AS is_after,
        sum(value) AS every,
        sum(CASE WHEN pod LIKE '{tenant}/%' THEN value END) AS own,
        sum(CASE WHEN pod LIKE '{tenant}/%' AND value IS NOT NULL THEN coalesce(low, 0) END) AS low,
        sum(CASE WHEN pod LIKE '{tenant}/%' AND value IS NOT NULL THEN coalesce(high, total) END) AS high,
        known_ns * coalesce(sum(value) / nullif(total, 0), 1) AS known
    FROM rollup
    WHERE cluster = '{cluster}' AND date = DATE '{date}' AND ts > TIMESTAMPTZ '{from}+00' AND ts <= TIMESTAMPTZ '{to}+00'
        AND unit = 'bytes' AND link IS NOT NULL
    GROUP BY host, boot_id, subsystem, link, direction, pmu, event, filter, mono_ns, known_ns, total
),
counters AS (
    SELECT
        host,
        subsystem,
        link,
        direction,
        is_after,
        count(own) AS windows,
        sum(every) / nullif(sum(known), 0) AS every_rate,
        sum(own) / nullif(sum(known), 0) AS own_rate,
        sum(low) / nullif(sum(known), 0) AS low_rate,
        sum(high) / nullif(sum(known), 0) AS high_rate
    FROM counted
    GROUP BY host, subsystem, link, direction, is_after, pmu, event, filter
),
hosts AS (
    -- Bytes per nanosecond are GB per second.
    SELECT
        host,
        subsystem,
        link,
        direction,
        sum(windows) AS windows,
        sum(CASE WHEN is_after = 0 THEN own_rate END) AS own_before,
        sum(CASE WHEN is_after = 0 THEN low_rate END) AS low_before,
        sum(CASE WHEN is_after = 0 THEN high_rate END) AS high_before,
        sum(CASE WHEN is_after = 1 THEN own_rate END) AS own_after,
        sum(CASE WHEN is_after = 1 THEN low_rate END) AS low_after,
        sum(CASE WHEN is_after = 1 THEN high_rate END) AS high_after,
        sum(CASE WHEN is_after = 0 THEN every_rate END) AS every_before,
        sum(CASE WHEN is_after = 1 THEN every_rate END) AS every_after
    FROM counters
    GROUP BY host, subsystem, link, direction
)
SELECT
    subsystem,
    link,
    direction,
    count(*) AS hosts,
    sum(own_before) AS before,
    sum(low_before) AS before_low,
    sum(high_before) AS before_high,
    sum(own_after) AS after,
    sum(low_after) AS after_low,
    sum(high_after) AS after_high,
    sum(every_before) AS all_before,
    sum(every_after) AS all_after
FROM hosts
WHERE windows > 0
GROUP BY subsystem, link, direction
ORDER BY subsystem, link, direction;
