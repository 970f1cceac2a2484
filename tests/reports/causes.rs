//! Who can have caused what a PMU counts.
