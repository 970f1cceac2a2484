//! Definitions of sums over rows of `fabric` that all views share.
//!
//! | question | type | file |
//! |---|---|---|
//! | value, confidence and interval of an owner | [`ShareSum`] | `share.rs` |
//! | time counted, and known part of it | [`CountedTime`] | `time.rs` |
//! | rate of the windows that end at one time | [`MomentRate`], [`HighestRate`] | `moment.rs` |
//! | bytes of each owner over a link at each of these times | [`Moments`] | `moment.rs` |
//! | parts of a window in the steps of a plot | [`TimeSteps`] | `time.rs` |
//!
//! Views decide what is summed (events, links, owners, steps of time) and how it is shown.
//! `docs/tables.md` has the same definitions as SQL, and `tests/sums_in_sql.rs` compares it with
//! `report`.

mod moment;
mod share;
mod time;

pub use self::moment::{HighestRate, MomentBytes, MomentRate, Moments};
pub use self::share::{Confidence, ShareSum};
pub use self::time::{CountedTime, TimeSteps, Window, WindowTimes};
