//! How long a redraw takes on a large machine: `docs/cost-scale.md` has the figures of a release
//! build.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::screen_lines;
use super::tests::{SECOND, app_of, link, row};
use crate::schema::fabric;
use crate::tables::writer::TablePiece;
use crate::view::live::FRAMES;

/// Tenants, links and frames; a hundredth of the rates without optimization.
const TENANTS: i32 = if cfg!(debug_assertions) { 100 } else { 1000 };
const LINKS: u32 = if cfg!(debug_assertions) { 20 } else { 200 };
/// The goal for a redraw.
const MAX_REDRAW: Duration = Duration::from_millis(100);

/// CPU time of this thread, which other load does not change.
fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn frame_rows(second: i64) -> TablePiece {
    let mut builder = fabric::Builder::default();
    let paths: Vec<String> =
        (0..TENANTS).map(|tenant| format!("/lab/tenant-{tenant:04}")).collect();
    for counter in 0..2 * LINKS as i32 {
        for (pid, cgroup) in (0..TENANTS).zip(&paths) {
            builder.append(&fabric::Row {
                pid: Some(pid),
                cgroup_id: Some(pid as u64),
                cgroup: Some(cgroup),
                value: Some(f64::from(pid % 7 + counter % 5 + 1)),
                total: Some(f64::from(TENANTS)),
                ..row(second, counter, "task")
            });
        }
    }
    TablePiece::Rows(&fabric::TABLE, builder.finish())
}

#[test]
fn a_redraw_of_a_large_machine_keeps_up() {
    let named = |number: u32| link(&format!("memory {number}"), "mem", 2 * number, &[]);
    let mut app = app_of((0..LINKS).map(named).collect(), false);
    let (mut feed_time, mut drawn) = (Duration::ZERO, Duration::MAX);
    for second in 1..=FRAMES as i64 + 2 {
        let piece = frame_rows(second);
        let begin = thread_cpu_time();
        app.add_piece(piece).unwrap();
        feed_time = thread_cpu_time().saturating_sub(begin);
        if second > FRAMES as i64 {
            let begin = thread_cpu_time();
            let lines = screen_lines(&app, 200, 50).len();
            drawn = drawn.min(thread_cpu_time().saturating_sub(begin));
            assert_eq!((lines, app.shown_screen().owners.len()), (50, TENANTS as usize));
        }
    }
    assert_eq!(SECOND, app.frame_ns());
    println!(
        "{TENANTS} tenants, {LINKS} links in both directions, {FRAMES} frames: redraw {drawn:.1?}, \
         rows of a frame {feed_time:.1?}"
    );
    assert!(drawn < MAX_REDRAW, "{drawn:?}");
}
