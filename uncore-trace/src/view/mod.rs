//! Answers questions from a recording's tables.
//!
//! Views read only tables, so live and recorded answers agree. One question per file. Guarantee:
//! memory grows with the number of different lines and names, not with the length of the recording.

pub mod answer;
pub mod brief;
pub mod canary;
pub mod cgroups;
pub mod check;
pub mod diff;
pub mod export;
pub mod grouping;
pub mod headroom;
pub mod heat;
mod html;
pub mod incomplete;
pub mod interval;
pub mod json_lines;
pub mod key;
pub mod latency;
mod line_cache;
pub mod links;
pub mod live;
mod losses;
pub mod machine_output;
pub mod mark_list;
pub mod marks;
mod names;
pub mod page;
mod parallel;
pub mod question;
pub mod render;
mod report_columns;
pub mod report_sums;
pub mod rollup;
pub mod selected;
pub mod span;
pub mod summed_time;
pub mod sums;
mod table_layout;
pub mod tenants;

#[cfg(test)]
mod sample;
