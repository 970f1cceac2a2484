//! Definitions of sums over rows of `fabric` that all views share.
//!
//! | question | type | file |
//! |---|---|---|
//! | value, confidence and interval of an owner | [`Share`] | `share.rs` |
//! | time counted, and known part of it | [`Time`] | `time.rs` |
//! | rate of the windows that end at one time | [`Rate`], [`Highest`] | `moment.rs` |
//! | bytes of each owner over a link at each of these times | [`Moments`] | `moment.rs` |
//! | parts of a window in the steps of a plot | [`Steps`] | `time.rs` |
//!
//! Views decide what is summed (events, links, owners, steps of time) and how it is shown.
//! `docs/tables.md` has the same definitions as SQL, and `tests/sums_in_sql.rs` compares it with
//! `report`.

mod moment;
mod share;
mod time;

pub use self::moment::{Highest, Moments, Moved, Rate};
pub use self::share::{Confidence, Share};
pub use self::time::{Lengths, Steps, Time, Window};
