//! Names of Intel's events and metrics, and memory that is not counted.
