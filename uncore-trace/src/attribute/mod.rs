//! Attribution: divides the count of a counter among owners. It touches no machine, file or clock:
//! entries in, rows out.
//!
//! A method divides one window of one counter among owners ([`division_method`]). With every method the
//! shares sum to the count: what cannot be attributed goes to
//! [`Owner::Unattributed`](crate::entries::Owner::Unattributed).
//!
//! A reading passes [`attributor`], which takes the entries; [`counter`] with its [`series`], which
//! has the count of a window; [`closing`], at the end of the window; a method
//! ([`division_method`]), at once or when the window has waited ([`waiting`]); [`row_queue`] and
//! [`rows`]. When methods learn, [`learning`] says: from the use in [`history`], with `learner`.
//! `stages` change windows and shares around the division.
//!
//! No two files import each other, directly or through others (`tests/structure.rs`), so this file
//! defines nothing: what files share stands in a file below them.

mod adjustment;
mod agreement;
mod attribution_settings;
mod attributor;
mod calibration;
mod cgroup_credit;
mod cgroups;
mod closing;
mod columns;
mod confidence;
mod core_siblings;
mod counter;
mod device_bytes;
mod device_source;
mod device_sources;
mod division_method;
mod exact;
mod facts;
mod grid;
mod history;
mod io;
mod learner;
mod learning;
mod learning_job;
mod matrix;
mod measured_part;
mod memory_links;
mod method;
mod misfit;
mod near_rates;
mod owner_names;
mod peer_rates;
mod port_confidence;
mod ports;
mod predictor;
mod regression;
mod residency;
mod row_budget;
mod row_queue;
mod rows;
mod schedule;
mod second_sums;
mod series;
mod share;
mod sibling_cost;
mod small_shares;
mod source;
mod stage;
mod stages;
mod statistics;
mod sums;
mod switches;
mod traffic_source;
mod usage;
mod use_entry;
mod use_row;
mod waiting;
mod window_parts;
mod windows;
mod witnessed;
mod witnesses;
mod workers;

#[cfg(test)]
pub(crate) mod tests;

pub use self::attribution_settings::AttributionSettings;
pub use self::attributor::Attributor;
pub use self::core_siblings::CoreSiblings;
pub use self::facts::{RecordingFacts, order_counters};
pub use self::learner::Effort;
pub use self::method::Method;
pub use self::small_shares::MIN_SHARE;
pub use self::workers::{available_threads, live_threads};
