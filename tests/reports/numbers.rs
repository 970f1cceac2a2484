//! Metrics with several forms, domains of counters, and CPUs near a die.
