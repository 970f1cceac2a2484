//! Arithmetic in the widest vectors that the CPU has.

/// Runs `work` compiled for AVX2 where the CPU has it: the baseline of `x86_64` has vectors of half
/// the width. Functions that `work` calls must be inlined. Results are the same, because sums have
/// a fixed order.
#[inline(always)]
#[expect(clippy::inline_always, reason = "what is not inlined is not compiled for AVX2")]
pub(super) fn run_with_wide_vectors<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        #[target_feature(enable = "avx2")]
        fn run<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        // SAFETY: the CPU has AVX2.
        #[expect(unsafe_code, reason = "the compiler cannot know which CPU it will be")]
        return unsafe { run(work) };
    }
    work()
}
