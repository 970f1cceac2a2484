//! What `doctor` and `record` say about kernels and containers.
