-- Macros for DuckDB about rows of `fabric`: sums with an interval, and windows in which an owner had nothing.
--
--     CREATE VIEW fabric AS FROM 'samples/grace/fabric.parquet';
--     .read queries/fabric.sql
--     FROM sums('fabric', cgroup);
--     FROM windows('fabric', cgroup);
--
-- The first argument is the name of a table or view with columns of `fabric`, of one boot of one host. It may be a part
-- of a recording's time and of its events, but must have the rows of all owners, because only these rows say what is known of a
-- window. The second names the lines: a column, or any expression of columns, e.g. coalesce(pod, cgroup). Rows of
-- different owners (task, irq, ...) are never in one line. If lines divide cgroups, set by_process, or the intervals are too
-- narrow:
--
--     FROM sums('fabric', comm, by_process := true);
--
-- docs/analysis.md has examples. The rules are those of `report`, and a test compares the numbers.

-- Half width of the 90 % interval of a row as a fraction of its value; null: the interval is from 0 to the total.
-- A confidence is the probability that a share is within 0.1 of the truth (docs/usage.md, The 90 % interval).
CREATE OR REPLACE MACRO half_width(confidence) AS
    CASE WHEN confidence > 0 AND NOT isnan(confidence)
         THEN 0.1 * atanh(0.9) / atanh(least(confidence, 1)::DOUBLE) END;

-- One line for each event, owner and key:
--
-- value          sum, in `unit`; null: no window of the line has a value
-- low, high      90 % interval of `value`; null: no row has a confidence
-- known_s        time that windows with a value cover, seconds
-- per_s          value / known_s
-- confidence     mean of the rows' confidences, weighted by value
CREATE OR REPLACE MACRO sums(rows, line, by_process := false) AS TABLE
WITH recorded AS (
    -- Older recordings lack this column.
    SELECT NULL::FLOAT AS cgroup_confidence WHERE false
    UNION ALL BY NAME
    FROM query_table(rows)
),
shares AS (
    SELECT
        event, filter, unit, owner, line AS key, counter, mono_ns, window_ns, value, total, confidence, socket,
        CASE WHEN by_process THEN coalesce(comm, '')
             ELSE coalesce(cgroup, CASE WHEN owner <> 'task' THEN comm END, '') END AS cause,
        greatest(value, 0) AS share,
        greatest(total - greatest(value, 0), 0) AS room,
        half_width(CASE WHEN by_process THEN confidence ELSE coalesce(cgroup_confidence, confidence) END) AS width,
        half_width(greatest(confidence, 0.01)) AS own_width
    FROM recorded
),
-- The distances to both ends of a row's interval: those of errors that last, and of all errors. If it reaches 0, its error
-- is shared with all other such rows.
distances AS (
    SELECT
        *,
        coalesce(least(share * width, share), share) AS down,
        coalesce(least(share * width, room), room) AS up,
        coalesce(least(share * own_width, share), share) AS own_down,
        coalesce(least(share * own_width, room), room) AS own_up,
        coalesce(width < 1, false) AS is_known
    FROM shares
),
reaches AS (
    SELECT
        * EXCLUDE (own_down, own_up),
        CASE WHEN confidence IS NULL THEN down ELSE own_down END AS all_down,
        CASE WHEN confidence IS NULL THEN up ELSE own_up END AS all_up,
        row_number() OVER (PARTITION BY event, filter, unit, owner, key, counter, mono_ns, window_ns) = 1 AS is_first,
        value IS NOT NULL
            AND row_number() OVER (PARTITION BY event, filter, unit, owner, key, is_known, socket, cause, mono_ns
                                   ORDER BY value IS NULL, window_ns DESC) = 1 AS is_longest
    FROM distances
),
-- Rows of one cgroup, or program, on one socket have the same error: their distances are added. Errors that do not last are
-- alike for 2 s.
causes AS (
    SELECT
        event, filter, unit, owner, key, is_known,
        sum(value) AS value, sum(down) AS down, sum(up) AS up, sum(total) FILTER (is_first) AS most,
        sum(all_down) AS all_down, sum(all_up) AS all_up,
        greatest(sum(window_ns) FILTER (is_longest) / 2e9, 1) AS spans,
        sum(confidence * share) AS by_value, sum(share) FILTER (confidence IS NOT NULL) AS claimed,
        sum(confidence) AS plain, count(confidence) FILTER (value IS NOT NULL) AS claims
    FROM reaches
    GROUP BY event, filter, unit, owner, key, is_known, socket, cause
),
squares AS (
    SELECT
        *,
        down * down + greatest(all_down * all_down - down * down, 0) / spans AS down_square,
        up * up + greatest(all_up * all_up - up * up, 0) / spans AS up_square
    FROM causes
),
-- Those of different causes are added in squares.
lines AS (
    SELECT
        event, filter, unit, owner, key,
        sum(value) AS value,
        coalesce(sum(down) FILTER (NOT is_known), 0) + sqrt(coalesce(sum(down_square) FILTER (is_known), 0)) AS down,
        coalesce(sum(up) FILTER (NOT is_known), 0) + sqrt(coalesce(sum(up_square) FILTER (is_known), 0)) AS up,
        sum(most) AS most,
        coalesce(sum(by_value) / nullif(sum(claimed), 0), sum(plain) / nullif(sum(claims), 0)) AS confidence,
        sum(claims) AS claims
    FROM squares
    GROUP BY event, filter, unit, owner, key
),
counted AS (
    SELECT
        event, filter, unit, counter, mono_ns AS end_ns, mono_ns - window_ns AS begin_ns, any_value(total) AS total
    FROM query_table(rows)
    GROUP BY ALL
),
earlier AS (
    SELECT
        *,
        max(end_ns) OVER (PARTITION BY event, filter, unit ORDER BY begin_ns, end_ns
                          ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM counted
),
known AS (
    SELECT
        event, filter, unit,
        sum(greatest(0, end_ns - greatest(begin_ns, coalesce(before, begin_ns)))) / 1e9
            * sum(end_ns - begin_ns) FILTER (total IS NOT NULL) / sum(end_ns - begin_ns) AS known_s
    FROM earlier
    GROUP BY event, filter, unit
),
-- What is unattributed beyond what nobody is expected to move may be of any tenant: the median of that part is 5 %, and
-- the standard deviation of its logarithm is 1.
events AS (
    SELECT
        event, filter, unit, sum(value) AS whole,
        greatest(sum(value) FILTER (owner = 'unattributed') - 0.05 * exp(1) * sum(value), 0) AS of_somebody
    FROM shares
    GROUP BY event, filter, unit
)
SELECT
    event, filter, unit, owner, key, value,
    CASE WHEN claims > 0 THEN least(greatest(value - down, 0), value) END AS low,
    CASE WHEN claims > 0 AND owner IN ('task', 'other_tasks') AND whole > 0
         THEN greatest(least(divided_high + coalesce(of_somebody, 0), whole), divided_high)
         WHEN claims > 0 THEN divided_high END AS high,
    known_s,
    value / known_s AS per_s,
    confidence
FROM (SELECT *, greatest(least(value + up, most), value) AS divided_high FROM lines) AS lines
JOIN known USING (event, filter, unit)
JOIN events USING (event, filter, unit)
ORDER BY event, filter, unit, value DESC NULLS LAST, owner, key;

-- One row for each event, each owner and key that has something of it, and each moment at which windows end:
--
-- ts, mono_ns    the moment
-- window_ns      length of the longest of these windows, ns
-- value          sum of the windows that end then: 0 if the owner had nothing, null if one of them has no value
-- per_s          sum of their rates, in `unit` a second
CREATE OR REPLACE MACRO windows(rows, line) AS TABLE
WITH shares AS (
    SELECT event, filter, unit, owner, line AS key, ts, mono_ns, window_ns, value, total
    FROM query_table(rows)
),
moments AS (
    SELECT
        event, filter, unit, mono_ns, any_value(ts) AS ts, max(window_ns) AS window_ns,
        bool_and(total IS NOT NULL) AS is_known
    FROM shares
    GROUP BY event, filter, unit, mono_ns
),
lines AS (
    SELECT DISTINCT event, filter, unit, owner, key
    FROM shares
    WHERE value <> 0
),
had AS (
    SELECT
        event, filter, unit, owner, key, mono_ns, sum(value) AS value, sum(value * 1e9 / window_ns) AS per_s
    FROM shares
    GROUP BY event, filter, unit, owner, key, mono_ns
)
SELECT
    lines.event, lines.filter, lines.unit, lines.owner, lines.key, ts, moments.mono_ns, window_ns,
    CASE WHEN is_known THEN coalesce(had.value, 0) END AS value,
    CASE WHEN is_known THEN coalesce(had.per_s, 0) END AS per_s
FROM lines
JOIN moments USING (event, filter, unit)
LEFT JOIN had
    ON had.event = lines.event AND had.filter = lines.filter AND had.unit = lines.unit AND had.owner = lines.owner
    AND had.key IS NOT DISTINCT FROM lines.key AND had.mono_ns = moments.mono_ns
ORDER BY lines.event, lines.filter, lines.owner, lines.key, moments.mono_ns;
