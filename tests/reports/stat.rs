//! What users of `perf stat` type.
