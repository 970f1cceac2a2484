//! Which time the rows of a table belong to, so that a part of a recording can be cut out.

/// Which time a row belongs to. Times are ns on `CLOCK_MONOTONIC`, in columns of type `int64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowTime {
    /// A window or a tick that ends at this time.
    Ends(&'static str),
    /// The windows that end in a second, the last of them at this time. Only whole seconds are cut
    /// out.
    Second(&'static str),
    /// The tick with this number. The rows of the tick before the first one hold the counts at the
    /// begin.
    Tick(&'static str),
    /// The span between two times.
    Between(&'static str, &'static str),
    /// The span between two times; null is before the recording, and after it.
    During(&'static str, &'static str),
    /// From a time on, or always, until another row has the same key.
    Holds {
        /// The column with the begin; `None`: always.
        since: Option<&'static str>,
        /// The key columns.
        key: &'static [&'static str],
        /// A column, and its value in the last row for a key.
        last_row: Option<(&'static str, &'static str)>,
    },
    /// The table has its own rules: see the module `cut` of `uncore-trace`.
    Own,
}
