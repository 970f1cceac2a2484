//! The grammar of perf's event texts.
