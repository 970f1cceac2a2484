//! `cargo xtask oracle`: compares what `perf stat` and this program open, and what they make of the
//! counts, on the machines of `tests/fixtures/machines`.
//!
//! Both read the captured files and count on a preloaded library (`tests/oracle/counts.c`), which
//! gives each encoding and CPU its own fixed count. A text agrees if both open the same counters
//! and the sum of their counts has the same value in the same unit, or if both refuse it; a metric
//! agrees if its value is equal. Guarantee: it fails on each difference that
//! `tests/oracle/differences.toml` does not give a reason for, and for each entry there whose
//! example agrees. Debian's perf moves without a change here: with a release that the list was not
//! made for, both are printed, and only `--all` fails.
#![expect(clippy::print_stdout, reason = "a task tells what it did")]

mod compare;
mod corpus;
mod counts;
mod differences;
mod ours;
mod perf;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context as _, Result, bail, ensure};
use uncore_trace_lab::fixtures;

use self::compare::{CaseOutcome, Outcome};
use self::corpus::Case;
use self::differences::{Difference, DifferenceFile};
use self::ours::Ours;
use self::perf::PerfProgram;
use crate::target;

/// Options of `cargo xtask oracle`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Compare every text and metric of every machine, not a sample
    #[arg(long)]
    all: bool,
    /// Compare only these cases, written as in the list of differences: `MACHINE TEXT` or
    /// `MACHINE -M METRIC`
    #[arg(conflicts_with = "all", value_name = "CASE")]
    cases: Vec<String>,
}

/// Texts of the sample.
const SAMPLE: usize = 300;

/// The seed of the sample and of the values in texts.
const SEED: u64 = 45;

/// Machines of which the sample has all metrics.
const MEASURED: [&str; 2] = ["skylake-sp-2s", "zen4-2s"];

/// A captured machine.
pub(super) struct OracleMachine {
    pub(super) name: String,
    /// The directory with its files.
    pub(super) root: PathBuf,
    /// What perf calls its processor; `None` if perf of this architecture has no tables for it.
    pub(super) processor: Option<String>,
    /// The metrics that this program lists; none where perf has none.
    pub(super) metrics: BTreeSet<String>,
}

/// Compares, and fails on a difference without a reason.
pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "this task makes mounts: run it as root");
    let work_dir = target::target_dir()?.join("oracle");
    std::fs::create_dir_all(&work_dir)
        .with_context(|| format!("cannot make {}", work_dir.display()))?;
    let library = counts::build_library(&work_dir)?;
    let perf = PerfProgram::find_newest(&work_dir, &library)?;
    println!("oracle: {}", perf.version);
    let ours = Ours { program: target::debug_binary()?, library };
    let dir = tempfile::tempdir().context("cannot make a directory")?;
    let machines = captured_machines(dir.path(), &ours)?;
    let known = differences::read_differences()?;
    let mut cases: Vec<Case> = args.cases.iter().map(|typed| Case::parse(typed)).collect();
    if !cases.is_empty() {
        for CaseOutcome { case, outcome } in compare_all(&cases, &machines, &perf, &ours)? {
            println!("oracle: {case}: {outcome}");
        }
        return Ok(());
    }
    cases = select_cases(&perf, &machines, &known, args.all)?;
    let count = report_outcomes(&compare_all(&cases, &machines, &perf, &ours)?, &known);
    match known.explain_release(&perf.version) {
        Some(why) if count > 0 && !args.all => println!("oracle: {why}: this is no failure"),
        why => {
            let suffix = why.map(|why| format!(": {why}")).unwrap_or_default();
            ensure!(
                count == 0,
                "{count} differences without a reason in {}, or reasons without a \
                 difference{suffix}",
                differences::FILE
            );
        }
    }
    Ok(())
}

/// The machines, unpacked below `dir`.
fn captured_machines(dir: &Path, ours: &Ours) -> Result<Vec<OracleMachine>> {
    let mut machines = Vec::new();
    for name in fixtures::names()? {
        let root = dir.join(&name);
        fixtures::machine(&name)?.unpack_to(&root)?;
        perf::add_topology(&root)?;
        let processor = perf::processor_id(&root);
        let metrics = match &processor {
            Some(_) => ours.listed_metrics(&root)?,
            None => BTreeSet::new(),
        };
        machines.push(OracleMachine { name, root, processor, metrics });
    }
    Ok(machines)
}

/// What is compared: the examples of all differences, then the texts and metrics.
fn select_cases(
    perf: &PerfProgram,
    machines: &[OracleMachine],
    known: &DifferenceFile,
    is_complete: bool,
) -> Result<Vec<Case>> {
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut texts = Vec::new();
    let mut metrics = Vec::new();
    for machine in machines {
        texts.extend(corpus::event_texts(machine, &mut random));
        if machine.processor.is_some() {
            let (events, names) = corpus::listed_cases(machine, &perf.list_names(machine)?);
            texts.extend(events);
            if is_complete || MEASURED.contains(&machine.name.as_str()) {
                metrics.extend(names);
            }
        }
    }
    println!("oracle: {} texts, {} metrics", texts.len(), metrics.len());
    if !is_complete {
        random.shuffle(&mut texts);
        texts.truncate(SAMPLE);
    }
    let examples = known.list.iter().map(Difference::example_case);
    let mut cases: Vec<Case> = examples.chain(texts).chain(metrics).collect();
    let mut seen = BTreeSet::new();
    cases.retain(|case| seen.insert(case.to_string()));
    Ok(cases)
}

/// Compares the cases, several at a time.
fn compare_all<'a>(
    cases: &'a [Case],
    machines: &[OracleMachine],
    perf: &PerfProgram,
    ours: &Ours,
) -> Result<Vec<CaseOutcome<'a>>> {
    let next_case = AtomicUsize::new(0);
    let work = || -> Result<Vec<CaseOutcome<'a>>> {
        let mut comparisons = Vec::new();
        while let Some(case) = cases.get(next_case.fetch_add(1, Ordering::Relaxed)) {
            let machine = machines.iter().find(|machine| machine.name == case.machine);
            let machine = machine.with_context(|| format!("no machine {}", case.machine))?;
            let outcome = compare::compare_case(case, machine, perf, ours)
                .with_context(|| case.to_string())?;
            comparisons.push(CaseOutcome { case, outcome });
        }
        Ok(comparisons)
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut comparisons = Vec::new();
    thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            let Ok(result) = worker.join() else { bail!("a comparison failed") };
            comparisons.extend(result?);
        }
        Ok(())
    })?;
    comparisons.sort_by_key(|case_outcome| case_outcome.case.to_string());
    Ok(comparisons)
}

/// Prints a summary, the differences without a reason and the reasons without a difference; gives
/// how many these are.
fn report_outcomes(comparisons: &[CaseOutcome<'_>], known: &DifferenceFile) -> usize {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut lines = Vec::new();
    for CaseOutcome { case, outcome } in comparisons {
        let has_reason = known.list.iter().any(|known| known.explains(case, outcome));
        let verdict = match outcome {
            Outcome::Same => "agree",
            Outcome::BothRefuse => "are refused by both",
            Outcome::Differs { .. } if has_reason => "differ with a reason",
            Outcome::Differs { .. } => {
                lines.push(format!("{case}: {outcome}"));
                "differ without a reason"
            }
        };
        *counts.entry(verdict).or_default() += 1;
    }
    let counts: Vec<_> =
        counts.iter().map(|(verdict, count)| format!("{count} {verdict}")).collect();
    println!("oracle: {}", counts.join(", "));
    let differs = |known: &&Difference| {
        comparisons.iter().any(|comparison| {
            known.is_example(comparison.case)
                && known.explains(comparison.case, &comparison.outcome)
        })
    };
    let stale = known.list.iter().filter(|known| !differs(known));
    lines.extend(stale.map(|known| format!("{}: no longer differs in this way", known.example)));
    for line in &lines {
        println!("oracle: {line}");
    }
    lines.len()
}
