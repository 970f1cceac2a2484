//! `cargo xtask oracle`: compares what `perf stat` and this program open, and what they make of the counts,
//! on the machines of `tests/fixtures/machines`.
//!
//! Both read the captured files and count on a preloaded library (`tests/oracle/counts.c`), which gives each
//! encoding and CPU its own fixed count. A text agrees if both open the same counters and the sum of their
//! counts has the same value in the same unit, or if both refuse it; a metric agrees if its value is equal.
//! Guarantee: it fails on each difference that `tests/oracle/differences.toml` does not give a reason for,
//! and for each entry there whose example agrees. Debian's perf moves without a change here: with a release
//! that the list was not made for, both are printed, and only `--all` fails.
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

use self::compare::{Found, Outcome};
use self::corpus::Case;
use self::differences::{Difference, Differences};
use self::ours::Ours;
use self::perf::Perf;
use crate::target;

/// Options of `cargo xtask oracle`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Compare every text and metric of every machine, not a sample
    #[arg(long)]
    all: bool,
    /// Compare only these, as the list of differences has them: `MACHINE TEXT` or `MACHINE -M METRIC`
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
pub(super) struct Machine {
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
    ensure!(rustix::process::geteuid().is_root(), "it makes mounts, so it must be run as root");
    let place = target::dir()?.join("oracle");
    std::fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
    let library = counts::build(&place)?;
    let perf = Perf::find(&place, &library)?;
    println!("oracle: {}", perf.version);
    let ours = Ours { program: target::debug()?, library };
    let dir = tempfile::tempdir().context("cannot make a directory")?;
    let machines = machines(dir.path(), &ours)?;
    let known = differences::read()?;
    let mut cases: Vec<Case> = args.cases.iter().map(|typed| Case::parse(typed)).collect();
    if !cases.is_empty() {
        for Found { case, outcome } in compare_all(&cases, &machines, &perf, &ours)? {
            println!("oracle: {case}: {outcome}");
        }
        return Ok(());
    }
    cases = select(&perf, &machines, &known, args.all)?;
    let count = report(&compare_all(&cases, &machines, &perf, &ours)?, &known);
    match known.unjudged(&perf.version) {
        Some(said) if count > 0 && !args.all => println!("oracle: {said}: this is no failure"),
        said => {
            let end = said.map(|said| format!(": {said}")).unwrap_or_default();
            let file = differences::FILE;
            ensure!(
                count == 0,
                "{count} differences without a reason in {file}, or reasons without a difference{end}"
            );
        }
    }
    Ok(())
}

/// The machines, unpacked below `dir`.
fn machines(dir: &Path, ours: &Ours) -> Result<Vec<Machine>> {
    let mut machines = Vec::new();
    for name in fixtures::names()? {
        let root = dir.join(&name);
        fixtures::machine(&name)?.unpack(&root)?;
        perf::complete(&root)?;
        let processor = perf::processor(&root);
        let metrics = match &processor {
            Some(_) => ours.metrics(&root)?,
            None => BTreeSet::new(),
        };
        machines.push(Machine { name, root, processor, metrics });
    }
    Ok(machines)
}

/// What is compared: the examples of all differences, then the texts and metrics.
fn select(perf: &Perf, machines: &[Machine], known: &Differences, all: bool) -> Result<Vec<Case>> {
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut texts = Vec::new();
    let mut metrics = Vec::new();
    for machine in machines {
        texts.extend(corpus::texts(machine, &mut random));
        if machine.processor.is_some() {
            let (events, names) = corpus::listed(machine, &perf.list(machine)?);
            texts.extend(events);
            if all || MEASURED.contains(&machine.name.as_str()) {
                metrics.extend(names);
            }
        }
    }
    println!("oracle: {} texts, {} metrics", texts.len(), metrics.len());
    if !all {
        random.shuffle(&mut texts);
        texts.truncate(SAMPLE);
    }
    let examples = known.list.iter().map(Difference::case);
    let mut cases: Vec<Case> = examples.chain(texts).chain(metrics).collect();
    let mut seen = BTreeSet::new();
    cases.retain(|case| seen.insert(case.to_string()));
    Ok(cases)
}

/// Compares the cases, several at a time.
fn compare_all<'a>(
    cases: &'a [Case],
    machines: &[Machine],
    perf: &Perf,
    ours: &Ours,
) -> Result<Vec<Found<'a>>> {
    let next = AtomicUsize::new(0);
    let work = || -> Result<Vec<Found<'a>>> {
        let mut found = Vec::new();
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let machine = machines.iter().find(|machine| machine.name == case.machine);
            let machine = machine.with_context(|| format!("no machine {}", case.machine))?;
            let outcome =
                compare::compare(case, machine, perf, ours).with_context(|| case.to_string())?;
            found.push(Found { case, outcome });
        }
        Ok(found)
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut found = Vec::new();
    thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            let Ok(made) = worker.join() else { bail!("a comparison failed") };
            found.extend(made?);
        }
        Ok(())
    })?;
    found.sort_by_key(|found| found.case.to_string());
    Ok(found)
}

/// Prints a summary, the differences without a reason and the reasons without a difference; gives how many
/// these are.
fn report(found: &[Found<'_>], known: &Differences) -> usize {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut lines = Vec::new();
    for Found { case, outcome } in found {
        let has_reason = known.list.iter().any(|known| known.is_of(case, outcome));
        let what = match outcome {
            Outcome::Same => "agree",
            Outcome::BothRefuse => "are refused by both",
            Outcome::Differs { .. } if has_reason => "differ with a reason",
            Outcome::Differs { .. } => {
                lines.push(format!("{case}: {outcome}"));
                "differ without a reason"
            }
        };
        *counts.entry(what).or_default() += 1;
    }
    let counts: Vec<_> = counts.iter().map(|(what, count)| format!("{count} {what}")).collect();
    println!("oracle: {}", counts.join(", "));
    let differs = |known: &&Difference| {
        found
            .iter()
            .any(|found| known.is_example(found.case) && known.is_of(found.case, &found.outcome))
    };
    let stale = known.list.iter().filter(|known| !differs(known));
    lines.extend(stale.map(|known| format!("{}: no longer differs so", known.example)));
    for line in &lines {
        println!("oracle: {line}");
    }
    lines.len()
}
