//! How rows of `fabric` are summed: the definitions that views share.
//!
//! | question | answer | where |
//! |---|---|---|
//! | how much had this owner, how sure is that, and within which interval | [`Share`] | `share.rs` |
//! | for how long was it counted, and for how much of that is the count known | [`Time`] | `time.rs` |
//! | what was the rate of the windows that end at one moment | [`Rate`], [`Highest`] | `moment.rs` |
//! | who moved how much in each of these moments | [`Moments`] | `moment.rs` |
//! | how does a window divide over the steps of a plot | [`Steps`] | `time.rs` |
//!
//! Views decide what is summed together (events, links, owners, steps of time) and how it is shown.
//! `docs/tables.md` has the same definitions as SQL, and `tests/sums_in_sql.rs` compares it with `report`.

mod moment;
mod share;
mod time;

pub use self::moment::{Highest, Moments, Moved, Rate};
pub use self::share::{Confidence, Share};
pub use self::time::{Lengths, Steps, Time, Window};
