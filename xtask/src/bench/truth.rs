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
use crate::command::run_quietly;
use crate::target;

/// Options of `cargo xtask bench truth`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// CPUs of each of the two sockets
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "4,16,72,144")]
    cpus: Vec<u32>,
    /// Tenants on each socket
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
    traits: MachineTraits,
}

/// What is special about the machines. Without any of it, machines with each of it follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, clap::Args)]
struct MachineTraits {
    /// Rates never change, and have little noise
    #[arg(long)]
    plain: bool,
    /// A counter for each group of this number of CPUs, instead of for each socket's memory
    #[arg(long, value_name = "CPUS")]
    group: Option<u32>,
    /// Ports of this number of CPUs each, by which the memory counters are divided
    #[arg(long, value_name = "CPUS")]
    ports: Option<u32>,
    /// Bandwidth of a socket's memory divided by its mean demand [default: 2.5]
    #[arg(long, value_name = "TIMES")]
    peak: Option<f64>,
    /// CPU quota of tenants that never pause, as a part of the time
    #[arg(long, value_name = "PART")]
    quota: Option<f64>,
    /// Count misses, with this relative noise in 50 us
    #[arg(long, value_name = "NOISE")]
    misses: Option<f64>,
    /// Measure the bytes of this number of the largest tenants, as monitors of the hardware do
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
const MORE: [(Pauses, MachineTraits); 6] = [
    (Pauses::Usual, MachineTraits { plain: true, ..NONE }),
    (Pauses::Usual, MachineTraits { group: Some(8), ..NONE }),
    (Pauses::Usual, MachineTraits { ports: Some(8), ..NONE }),
    (Pauses::Usual, MachineTraits { peak: Some(1.6), ..NONE }),
    (Pauses::Usual, MachineTraits { misses: Some(0.2), ..NONE }),
    (Pauses::Never, MachineTraits { quota: Some(0.98), ..NONE }),
];
const NONE: MachineTraits = MachineTraits {
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
struct TruthMachine {
    cpus: u32,
    tenants: u32,
    pauses: Pauses,
    #[serde(flatten)]
    traits: MachineTraits,
}

/// The argument of the bench.
#[derive(Serialize)]
struct TruthCase<'a> {
    #[serde(flatten)]
    machine: TruthMachine,
    seed: u64,
    seconds: f64,
    method: &'a str,
    window: u32,
}

/// The figures of a case, or the sums of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
struct TruthFigures {
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
         median / misplaced, % | confidence: said / right (rms) | intervals that hold: few \
         processes, many | sure bills within 15 % | CPU, s | memory, MiB |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    for machine in list_machines(args) {
        for method in &args.methods {
            let mut sum = TruthFigures::default();
            for &seed in &args.seed {
                let Args { seconds, window, .. } = *args;
                eprintln!("{}, {method}, seed {seed}", machine_text(&machine));
                sum = sum.sum_with(&measure_case(&TruthCase {
                    machine,
                    seed,
                    seconds,
                    method,
                    window,
                })?);
            }
            println!(
                "{}",
                table_row(&machine_text(&machine), method, &sum, args.seed.len() as f64)
            );
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

fn list_machines(args: &Args) -> Vec<TruthMachine> {
    let base_traits = MachineTraits { peak: args.traits.peak.or(Some(PEAK)), ..args.traits };
    let mut machines = Vec::new();
    for &pauses in &args.pauses {
        for &cpus in &args.cpus {
            let machine =
                |&tenants: &u32| TruthMachine { cpus, tenants, pauses, traits: base_traits };
            machines.extend(args.tenants.iter().map(machine));
        }
    }
    let (cpus, tenants) = OF_MORE;
    let has_common_size = args.cpus.contains(&cpus) && args.tenants.contains(&tenants);
    if args.traits == NONE && has_common_size {
        let more_machines = MORE.iter().filter(|(pauses, _)| args.pauses.contains(pauses));
        machines.extend(more_machines.map(|&(pauses, listed_traits)| {
            let extra_traits =
                MachineTraits { peak: listed_traits.peak.or(Some(PEAK)), ..listed_traits };
            TruthMachine { cpus, tenants, pauses, traits: extra_traits }
        }));
    }
    machines
}

fn measure_case(case: &TruthCase<'_>) -> Result<TruthFigures> {
    let mut command = target::cargo_command();
    command.args(["bench", "--locked", "--quiet", "--package=uncore-trace", "--bench=truth", "--"]);
    command.arg(serde_json::to_string(case).context("cannot write the case")?);
    let text = run_quietly(&mut command)?;
    let line = text.lines().find(|line| line.starts_with('{')).context("no result")?;
    serde_json::from_str(line).context("cannot read the result")
}

impl TruthFigures {
    fn sum_with(&self, case_figures: &Self) -> Self {
        let pair = |left_counts: [u32; 2], right_counts: [u32; 2]| {
            [left_counts[0] + right_counts[0], left_counts[1] + right_counts[1]]
        };
        Self {
            median: self.median + case_figures.median,
            p95: self.p95 + case_figures.p95,
            misplaced: self.misplaced + case_figures.misplaced,
            bill: self.bill + case_figures.bill,
            said: self.said + case_figures.said,
            right: self.right + case_figures.right,
            rms: self.rms + case_figures.rms,
            few: pair(self.few, case_figures.few),
            many: pair(self.many, case_figures.many),
            sure: pair(self.sure, case_figures.sure),
            floor: Floor {
                median: self.floor.median + case_figures.floor.median,
                misplaced: self.floor.misplaced + case_figures.floor.misplaced,
            },
            cpu_s: self.cpu_s + case_figures.cpu_s,
            peak_mib: self.peak_mib + case_figures.peak_mib,
        }
    }
}

fn machine_text(machine: &TruthMachine) -> String {
    let TruthMachine { cpus, tenants, pauses, traits: machine_traits } = machine;
    let mut words = vec![format!("{cpus} CPUs"), format!("{tenants} tenants")];
    words.extend((*pauses == Pauses::Never).then(|| "never pausing".to_owned()));
    words
        .extend(machine_traits.quota.map(|fraction| format!("quota of {:.0} %", fraction * 100.0)));
    words.extend(machine_traits.plain.then(|| "plain".to_owned()));
    words.extend(machine_traits.group.map(|cpus| format!("counters of {cpus} CPUs")));
    words.extend(machine_traits.ports.map(|cpus| format!("ports of {cpus} CPUs")));
    words.extend(
        machine_traits.peak.filter(|peak| *peak != PEAK).map(|peak| format!("peak {peak}")),
    );
    words.extend(machine_traits.misses.map(|noise| format!("misses ({noise})")));
    words.extend(machine_traits.monitors.map(|count| format!("{count} monitors")));
    words.join(", ")
}

/// Of the sums over `seeds` cases.
fn table_row(machine: &str, method: &str, sum: &TruthFigures, seeds: f64) -> String {
    let percent = |seed_sum: f64| format!("{:.1}", seed_sum / seeds * 100.0);
    let errors = [sum.median, sum.p95, sum.misplaced, sum.bill].map(percent).join(" | ");
    let floor = [sum.floor.median, sum.floor.misplaced].map(percent).join(" / ");
    let [said, right, rms] = [sum.said, sum.right, sum.rms].map(|figure_sum| figure_sum / seeds);
    let [few, many, sure] =
        [sum.few, sum.many, sum.sure].map(|[holding, total]| format!("{holding} of {total}"));
    let (cpu, peak) = (sum.cpu_s / seeds, sum.peak_mib / seeds);
    format!(
        "| {machine} | {method} | {errors} | {floor} | {said:.2} / {right:.2} ({rms:.2}) | {few}, \
         {many} | {sure} | {cpu:.1} | {peak:.0} |"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_means_and_counts_of_all_seeds() {
        let one = TruthFigures {
            median: 0.1,
            few: [3, 4],
            cpu_s: 1.0,
            said: 0.5,
            ..TruthFigures::default()
        };
        let two = TruthFigures {
            median: 0.2,
            few: [5, 6],
            cpu_s: 2.0,
            said: 0.7,
            ..TruthFigures::default()
        };
        let sum = TruthFigures::default().sum_with(&one).sum_with(&two);
        let expected = "| a | auto | 15.0 | 0.0 | 0.0 | 0.0 | 0.0 / 0.0 | 0.60 / 0.00 (0.00) | 8 \
                        of 10, 0 of 0 | 0 of 0 | 1.5 | 0 |";
        assert_eq!(table_row("a", "auto", &sum, 2.0), expected);
    }
}
