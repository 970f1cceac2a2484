//! The time of reading and planning a machine grows with its size, and not with its square.
//!
//! Times of the CPU are compared with each other, so that a slow or a busy machine changes nothing.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;
use uncore_trace::catalog::Catalog;
use uncore_trace::cmd::list::{ListForm, View, What, render_list};
use uncore_trace::discover::machine;
use uncore_trace::plan::plan;
use uncore_trace_lab::large::{self, LargeSize};

use crate::machines::request;

/// The CPU time of this thread, seconds.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// The CPU time that `work` takes, the least of three.
fn least_seconds(mut work: impl FnMut()) -> f64 {
    let mut seconds = || {
        let begin = cpu_seconds();
        work();
        cpu_seconds() - begin
    };
    (0..3).map(|_| seconds()).fold(f64::INFINITY, f64::min)
}

/// The CPU time of reading a machine of this size, of its plan, and of listing it.
fn times(size: LargeSize) -> [(&'static str, f64); 3] {
    let root = TempDir::new().unwrap();
    large::large_machine(size).unwrap().fill_dir(root.path()).unwrap();
    let catalog = Catalog::load_embedded().unwrap();
    let discovered = machine(root.path()).unwrap();
    [
        ("discovery", least_seconds(|| _ = machine(root.path()).unwrap())),
        (
            "plan",
            least_seconds(|| _ = plan(&discovered, &catalog, &request(&["all"], &[])).unwrap()),
        ),
        (
            "list",
            least_seconds(|| {
                for listed in [What::Groups, What::Metrics, What::Events, What::Devices] {
                    _ = render_list(&discovered, &catalog, listed, ListForm::Text(View::default()))
                        .unwrap();
                }
            }),
        ),
    ]
}

/// Fails if something takes more than `most` times as long on the larger machine.
fn assert_growth(small: LargeSize, large: LargeSize, most: f64) {
    for ((step, before), (_, after)) in times(small).into_iter().zip(times(large)) {
        let ratio = after / before;
        assert!(
            ratio < most,
            "{step}: {before:.4} s on {small:?}, {after:.4} s on {large:?}: {ratio:.1} times"
        );
    }
}

/// Eight times the sockets have eight times the CPUs and the counters: 8 times the time, where
/// their product would be 64.
#[test]
fn planning_time_is_not_quadratic_in_sockets() {
    let size_with = |sockets| LargeSize { sockets, cores: 8, boxes: 0 };
    assert_growth(size_with(4), size_with(32), 20.0);
}

/// What follows from the files of a box alone is found once for all of its kind: eight times the
/// boxes take less than four times the time to list.
#[test]
fn listing_many_boxes_of_a_kind_takes_little_more_time() {
    let catalog = Catalog::load_embedded().unwrap();
    let list_seconds = |boxes| {
        let root = TempDir::new().unwrap();
        let size = LargeSize { sockets: 1, cores: 2, boxes };
        large::large_machine(size).unwrap().fill_dir(root.path()).unwrap();
        let discovered = machine(root.path()).unwrap();
        let listed = [What::Metrics, What::Events, What::Pmus];
        let form = ListForm::Text(View::default());
        least_seconds(|| {
            for part in listed {
                _ = render_list(&discovered, &catalog, part, form).unwrap();
            }
        })
    };
    let (few, many) = (list_seconds(1), list_seconds(8));
    assert!(many / few < 4.0, "{few:.4} s for one of each, {many:.4} s for eight");
}

/// Four times the boxes of a kind: 4 times the time, where their square would be 16.
#[test]
fn planning_time_is_not_quadratic_in_boxes() {
    let size_with = |boxes| LargeSize { sockets: 2, cores: 4, boxes };
    assert_growth(size_with(1), size_with(4), 10.0);
}
