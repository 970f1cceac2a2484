//! Tables of latencies in `report`: one for each link, over the windows in which a tenant used it.

use anyhow::{Context as _, Result, ensure};

use super::{Args, build_question, print};
use crate::catalog::metric::{self, MetricValue};
use crate::schema::metric::PlannedMetric;
use crate::tables::reader::Recording;
use crate::text::printable_path;
use crate::view::incomplete::Incomplete;
use crate::view::latency::{self, LinkLatency, latencies};
use crate::view::links::Links;
use crate::view::render::TextStyle;

/// The tables, printed below the others; empty if the recording has no latency.
pub(super) fn latency_tables(
    recording: &Recording,
    args: &Args,
    style: TextStyle,
) -> Result<String> {
    let latencies = read_latencies(recording, args)?;
    Ok(latency::text::render_text(&latencies, args.grouping(), args.top, style))
}

/// Prints only the latencies; exit code 0.
pub(super) fn print_latencies(recording: &Recording, args: &Args) -> Result<u8> {
    let path = printable_path(&args.path);
    ensure!(
        args.grouping().has_owner(),
        "--latency has lines for tenants only: leave out --by {}, or choose another --by",
        args.grouping().name()
    );
    let latencies = read_latencies(recording, args)?;
    ensure!(
        !recording.is_rollup(),
        "{path} is a roll-up, which has no latencies: give a recording"
    );
    ensure!(
        !latencies.is_empty(),
        "{path} has no latency of a link: record with -p mem,latency on a machine that counts one \
         (see `uncore-trace list metrics`)"
    );
    let incomplete = Incomplete::from_recording(recording)?;
    if let Some(command) =
        incomplete.as_ref().and_then(|incomplete| incomplete.check_command(&path))
    {
        log::warn!("{path} is incomplete: see `{command}`");
    }
    print(&if args.json {
        latency::json::write_json_lines(&latencies, args.grouping(), incomplete.is_none())
            .context("cannot write JSON")?
    } else {
        latency::text::render_text(&latencies, args.grouping(), args.top, args.text_style())
    })?;
    Ok(0)
}

fn read_latencies(recording: &Recording, args: &Args) -> Result<Vec<LinkLatency>> {
    latencies(
        recording,
        &Links::from_recording(recording)?,
        &build_question(recording, args)?,
        evaluate_metric,
    )
}

fn evaluate_metric(
    instances: &[&PlannedMetric],
    count: &dyn Fn(u32) -> Option<f64>,
    duration_ns: f64,
) -> Option<f64> {
    match metric::evaluate_metric(instances, count, duration_ns) {
        MetricValue::Number(value) => Some(value),
        MetricValue::Undefined | MetricValue::Missing(_) => None,
    }
}
