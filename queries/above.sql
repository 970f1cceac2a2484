-- Which hosts had a link above 80 % of its peak for more than a minute?
--
-- {cluster} {date}  north, 2026-11-17 (UTC)
-- {percent}         80
-- {seconds}         60: shorter stretches are left out. A window is an average, so bursts that are
--                   shorter than a window are not seen
--
-- host, link, direction  both: the peak is for the sum of in and out
-- first_ts, last_ts  ends of the first and the last window of the stretch
-- seconds            length of the stretch, in which every window was above
-- average_percent, highest_percent  of the peak, the highest of a window
--
-- Links without a known peak are left out. A gap, a boot, or midnight (UTC) ends a stretch: query both
-- days.
WITH sets AS (
    -- A counter's rows in a window sum to its total. If the agent was restarted, or a recording continued in
    -- another part, there are two such sets, each with its own known time. Some peaks are for both directions.
    SELECT
        host,
        boot_id,
        link,
        CASE WHEN peak_direction = 'both' THEN 'both' ELSE direction END AS way,
        pmu,
        event,
        filter,
        mono_ns,
        max(ts) AS ts,
        max(window_ns) AS window_ns,
        max(peak) AS most,
        sum(value) AS moved,
        -- Two sets with the same known time and total are one group here; the sum of their values is twice the total.
        known_ns * coalesce(sum(value) / nullif(total, 0), 1) AS known
    FROM rollup
    WHERE cluster = '{cluster}' AND date = DATE '{date}' AND unit = 'bytes' AND peak > 0 AND known_ns > 0
    GROUP BY host, boot_id, link, CASE WHEN peak_direction = 'both' THEN 'both' ELSE direction END, pmu, event, filter,
        mono_ns, known_ns, total
),
counters AS (
    SELECT
        host,
        boot_id,
        link,
        way,
        mono_ns,
        max(ts) AS ts,
        max(window_ns) AS window_ns,
        max(most) AS most,
        sum(moved) / sum(known) AS rate
    FROM sets
    GROUP BY host, boot_id, link, way, pmu, event, filter, mono_ns
),
rates AS (
    -- Rate of all counters of a link in a window, as a fraction of its peak.
    SELECT
        host,
        boot_id,
        link,
        way,
        mono_ns,
        max(ts) AS ts,
        max(window_ns) AS window_ns,
        100 * sum(rate) * 1e9 / max(most) AS percent
    FROM counters
    GROUP BY host, boot_id, link, way, mono_ns
),
high AS (
    SELECT
        *,
        lag(mono_ns) OVER (PARTITION BY host, boot_id, link, way ORDER BY mono_ns) AS last
    FROM rates
    WHERE percent > {percent}
),
numbered AS (
    -- A window that does not begin where the last one ended begins a stretch.
    SELECT
        *,
        sum(CASE WHEN last >= mono_ns - window_ns THEN 0 ELSE 1 END)
            OVER (PARTITION BY host, boot_id, link, way ORDER BY mono_ns) AS stretch
    FROM high
),
stretches AS (
    SELECT
        host,
        link,
        way AS direction,
        min(ts) AS first_ts,
        max(ts) AS last_ts,
        sum(window_ns) / 1e9 AS seconds,
        sum(percent * window_ns) / sum(window_ns) AS average_percent,
        max(percent) AS highest_percent
    FROM numbered
    GROUP BY host, boot_id, link, way, stretch
)
SELECT * FROM stretches
WHERE seconds > {seconds}
ORDER BY host, link, direction, first_ts;
