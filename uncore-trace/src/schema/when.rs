//! Where the rows of a table lie in time, so that a part of a recording can be taken out of it.

/// Of which time a row is. Times are `CLOCK_MONOTONIC`, ns, in columns of type `int64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Of a window or a tick that ends at this time.
    Ends(&'static str),
    /// Of the tick whose number this is. The rows of the tick before the first are the counts that it
    /// begins with.
    Tick(&'static str),
    /// From one time to another.
    Between(&'static str, &'static str),
    /// From a time on, or always, until another row has the same key.
    Holds {
        /// Since when; always where it has no such column.
        since: Option<&'static str>,
        /// What it is about.
        key: &'static [&'static str],
        /// A column, and its value in the last row that is about a key.
        last: Option<(&'static str, &'static str)>,
    },
    /// As the table's own rules say, see [`crate::cut`].
    Own,
}
