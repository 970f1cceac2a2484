//! `cargo xtask bench truth`: how right attribution is on large machines, and its cost.
//! `uncore-trace/benches/truth` draws the machines and says what the figures are. Each case is a
//! process of its own, so that CPU time and memory are those of one case.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the table is the result")]

use std::env;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use jiff::Zoned;
use serde::{Deserialize, Serialize};

use super::machine;
use crate::command::quietly;
use crate::target;

/// Options of `cargo xtask bench truth`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// CPUs of each of the two sockets
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "4,16,72,144")]
    cpus: Vec<u32>,
    /// Tenants with their home on each socket
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "8,32,128")]
    tenants: Vec<u32>,
    /// Whether tenants sleep
    #[arg(long, value_delimiter = ',', default_value = "usual,never")]
    pauses: Vec<Pauses>,
    /// Seeds of the machines; figures are means over them
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,2")]
    seed: Vec<u64>,
    /// Length of a recording, s
    #[arg(long, default_value_t = 30.0)]
    seconds: f64,
    /// Methods of attribution
    #[arg(long, value_name = "METHOD,...", value_delimiter = ',', default_value = "auto")]
    methods: Vec<String>,
    /// Length of a window, ms
    #[arg(long, value_name = "MS", default_value_t = 100)]
    window: u32,
    #[command(flatten)]
    kind: Kind,
}

/// What is special about the machines. Without any of it, machines with each of it follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, clap::Args)]
struct Kind {
    /// Rates never change, and have little noise
    #[arg(long)]
    plain: bool,
    /// A counter for each group of so many CPUs, not for each socket's memory
    #[arg(long, value_name = "CPUS")]
    group: Option<u32>,
    /// Ports of so many CPUs each, by which the counters of memory are divided
    #[arg(long, value_name = "CPUS")]
    ports: Option<u32>,
    /// Capacity of a socket's memory over its mean demand [default: 2.5]
    #[arg(long, value_name = "TIMES")]
    peak: Option<f64>,
    /// The part of its time that each tenant which never pauses has as its quota
    #[arg(long, value_name = "PART")]
    quota: Option<f64>,
    /// Count misses, with this noise in 50 us
    #[arg(long, value_name = "NOISE")]
    misses: Option<f64>,
    /// Measure the bytes of this number of tenants, those with the most, as monitors of the
    /// hardware do
    #[arg(long, value_name = "N")]
    monitors: Option<u32>,
}

/// Whether the tenants of a machine sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
enum Pauses {
    /// Tenants of all kinds
    Usual,
    /// Threads never sleep
    Never,
}

/// What the machines that follow the others are.
const MORE: [(Pauses, Kind); 6] = [
    (Pauses::Usual, Kind { plain: true, ..NONE }),
    (Pauses::Usual, Kind { group: Some(8), ..NONE }),
    (Pauses::Usual, Kind { ports: Some(8), ..NONE }),
    (Pauses::Usual, Kind { peak: Some(1.6), ..NONE }),
    (Pauses::Usual, Kind { misses: Some(0.2), ..NONE }),
    (Pauses::Never, Kind { quota: Some(0.98), ..NONE }),
];
const NONE: Kind = Kind {
    plain: false,
    group: None,
    ports: None,
    peak: None,
    quota: None,
    misses: None,
    monitors: None,
};
/// CPUs and tenants of these.
const OF_MORE: (u32, u32) = (72, 32);

/// Capacity of memory over the mean demand.
const PEAK: f64 = 2.5;

/// A machine.
#[derive(Clone, Copy, Debug, Serialize)]
struct Machine {
    cpus: u32,
    tenants: u32,
    pauses: Pauses,
    #[serde(flatten)]
    kind: Kind,
}

/// The argument of the bench.
#[derive(Serialize)]
struct Case<'a> {
    #[serde(flatten)]
    machine: Machine,
    seed: u64,
    seconds: f64,
    method: &'a str,
    window: u32,
}

/// The figures of a case, or the sums of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
struct Figures {
    median: f64,
    p95: f64,
    misplaced: f64,
    bill: f64,
    said: f64,
    right: f64,
    rms: f64,
    few: [u32; 2],
    many: [u32; 2],
    sure: [u32; 2],
    floor: Floor,
    cpu_s: f64,
    peak_mib: f64,
}

/// Those of the true rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
struct Floor {
    median: f64,
    misplaced: f64,
}

/// Measures all machines and prints the table.
pub(super) fn run(args: &Args) -> Result<()> {
    println!(
        "| machine | method | median error, % | 95th percentile | misplaced, % | bill, % | floor: \
         median / misplaced, % | confidence: \
         said / right (rms) | intervals that hold: few processes, many | sure bills within 15 % | CPU, s \
         | memory, MiB |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    for machine in machines(args) {
        for method in &args.methods {
            let mut sum = Figures::default();
            for &seed in &args.seed {
                let Args { seconds, window, .. } = *args;
                eprintln!("{}, {method}, seed {seed}", name(&machine));
                sum = sum.and(&measure(&Case { machine, seed, seconds, method, window })?);
            }
            println!("{}", row(&name(&machine), method, &sum, args.seed.len() as f64));
        }
    }
    println!();
    let options: Vec<String> = env::args().skip(1).collect();
    println!(
        "`cargo xtask {}`; {}, {}",
        options.join(" "),
        machine::describe_machine(),
        Zoned::now().date()
    );
    Ok(())
}

fn machines(args: &Args) -> Vec<Machine> {
    let kind = Kind { peak: args.kind.peak.or(Some(PEAK)), ..args.kind };
    let mut machines = Vec::new();
    for &pauses in &args.pauses {
        for &cpus in &args.cpus {
            let machine = |&tenants: &u32| Machine { cpus, tenants, pauses, kind };
            machines.extend(args.tenants.iter().map(machine));
        }
    }
    let (cpus, tenants) = OF_MORE;
    let is_there = args.cpus.contains(&cpus) && args.tenants.contains(&tenants);
    if args.kind == NONE && is_there {
        let there = MORE.iter().filter(|(pauses, _)| args.pauses.contains(pauses));
        machines.extend(there.map(|&(pauses, kind)| {
            let kind = Kind { peak: kind.peak.or(Some(PEAK)), ..kind };
            Machine { cpus, tenants, pauses, kind }
        }));
    }
    machines
}

fn measure(case: &Case<'_>) -> Result<Figures> {
    let mut command = target::cargo();
    command.args(["bench", "--locked", "--quiet", "--package=uncore-trace", "--bench=truth", "--"]);
    command.arg(serde_json::to_string(case).context("cannot write the case")?);
    let text = quietly(&mut command)?;
    let line = text.lines().find(|line| line.starts_with('{')).context("no result")?;
    serde_json::from_str(line).context("cannot read the result")
}

impl Figures {
    fn and(&self, other: &Self) -> Self {
        let pair = |one: [u32; 2], other: [u32; 2]| [one[0] + other[0], one[1] + other[1]];
        Self {
            median: self.median + other.median,
            p95: self.p95 + other.p95,
            misplaced: self.misplaced + other.misplaced,
            bill: self.bill + other.bill,
            said: self.said + other.said,
            right: self.right + other.right,
            rms: self.rms + other.rms,
            few: pair(self.few, other.few),
            many: pair(self.many, other.many),
            sure: pair(self.sure, other.sure),
            floor: Floor {
                median: self.floor.median + other.floor.median,
                misplaced: self.floor.misplaced + other.floor.misplaced,
            },
            cpu_s: self.cpu_s + other.cpu_s,
            peak_mib: self.peak_mib + other.peak_mib,
        }
    }
}

fn name(machine: &Machine) -> String {
    let Machine { cpus, tenants, pauses, kind } = machine;
    let mut parts = vec![format!("{cpus} CPUs"), format!("{tenants} tenants")];
    parts.extend((*pauses == Pauses::Never).then(|| "never pausing".to_owned()));
    parts.extend(kind.quota.map(|part| format!("quota of {:.0} %", part * 100.0)));
    parts.extend(kind.plain.then(|| "plain".to_owned()));
    parts.extend(kind.group.map(|cpus| format!("counters of {cpus} CPUs")));
    parts.extend(kind.ports.map(|cpus| format!("ports of {cpus} CPUs")));
    parts.extend(kind.peak.filter(|peak| *peak != PEAK).map(|peak| format!("peak {peak}")));
    parts.extend(kind.misses.map(|noise| format!("misses ({noise})")));
    parts.extend(kind.monitors.map(|most| format!("{most} monitors")));
    parts.join(", ")
}

/// Of the sums over `seeds` cases.
fn row(machine: &str, method: &str, sum: &Figures, seeds: f64) -> String {
    let percent = |part: f64| format!("{:.1}", part / seeds * 100.0);
    let errors = [sum.median, sum.p95, sum.misplaced, sum.bill].map(percent).join(" | ");
    let floor = [sum.floor.median, sum.floor.misplaced].map(percent).join(" / ");
    let [said, right, rms] = [sum.said, sum.right, sum.rms].map(|part| part / seeds);
    let [few, many, sure] =
        [sum.few, sum.many, sum.sure].map(|[its, all]| format!("{its} of {all}"));
    let (cpu, peak) = (sum.cpu_s / seeds, sum.peak_mib / seeds);
    format!(
        "| {machine} | {method} | {errors} | {floor} | {said:.2} / {right:.2} ({rms:.2}) | {few}, {many} | {sure} | \
         {cpu:.1} | {peak:.0} |"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_means_and_counts_of_all_seeds() {
        let one = Figures { median: 0.1, few: [3, 4], cpu_s: 1.0, said: 0.5, ..Figures::default() };
        let two = Figures { median: 0.2, few: [5, 6], cpu_s: 2.0, said: 0.7, ..Figures::default() };
        let sum = Figures::default().and(&one).and(&two);
        let expected = "| a | auto | 15.0 | 0.0 | 0.0 | 0.0 | 0.0 / 0.0 | 0.60 / 0.00 (0.00) | \
                        8 of 10, 0 of 0 | 0 of 0 | 1.5 | 0 |";
        assert_eq!(row("a", "auto", &sum, 2.0), expected);
    }
}
