//! `cargo xtask bench truth`: how right attribution is on large machines, and its cost.
//! `uncore-trace/benches/truth` draws the machines and says what the figures are. Each case is a
//! process of its own, so that CPU time and memory are those of one case.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the table is the result")]

use std::env;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use jiff::Zoned;
use serde::Serialize;

use self::ground_name::Ground;
use self::tables::{GROUND_HEADINGS, HEADINGS, RowText, TruthFigures};
use super::machine;
use crate::command::run_quietly;
use crate::target;

#[path = "../../../uncore-trace/benches/truth/ground_name.rs"]
mod ground_name;
mod tables;

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
    /// What the machines have that the model does not know; with more than `base`, the table of
    /// grounds is printed
    #[arg(
        long,
        value_name = "GROUND,...",
        value_delimiter = ',',
        default_value = "base",
        value_parser = ground_parser()
    )]
    ground: Vec<GroundChoice>,
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

/// A value of `--ground`: one of them, or all.
#[derive(Clone, Copy, Debug)]
struct GroundChoice(&'static [Ground]);

fn ground_parser() -> impl TypedValueParser<Value = GroundChoice> {
    let grounds = Ground::value_variants();
    let names = grounds.iter().filter_map(Ground::to_possible_value);
    PossibleValuesParser::new(names.chain([PossibleValue::new("all").help("All of these")])).map(
        |name| {
            let variant = grounds.iter().find(|ground| ground_text(**ground) == name);
            GroundChoice(variant.map_or(grounds, std::slice::from_ref))
        },
    )
}

fn ground_text(ground: Ground) -> String {
    ground.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
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
    ground: Ground,
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

/// Measures all machines and prints the table.
pub(super) fn run(args: &Args) -> Result<()> {
    let has_grounds = args.grounds().any(|ground| ground != Ground::Base);
    let (headings, row_text): (_, RowText) = if has_grounds {
        (GROUND_HEADINGS, tables::ground_row)
    } else {
        (HEADINGS, tables::table_row)
    };
    println!("| {} |\n{}|", headings.join(" | "), "|---".repeat(headings.len()));
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
            println!("{}", row_text(&machine_text(&machine), method, &sum, args.seed.len() as f64));
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

impl Args {
    fn grounds(&self) -> impl Iterator<Item = Ground> {
        self.ground.iter().flat_map(|choice| choice.0.iter().copied())
    }
}

fn list_machines(args: &Args) -> Vec<TruthMachine> {
    let base_traits = MachineTraits { peak: args.traits.peak.or(Some(PEAK)), ..args.traits };
    let mut machines = Vec::new();
    for &pauses in &args.pauses {
        for &cpus in &args.cpus {
            for &tenants in &args.tenants {
                machines.extend(args.grounds().map(|ground| TruthMachine {
                    cpus,
                    tenants,
                    pauses,
                    ground,
                    traits: base_traits,
                }));
            }
        }
    }
    let (cpus, tenants) = OF_MORE;
    let has_common_size = args.cpus.contains(&cpus) && args.tenants.contains(&tenants);
    let is_on_base = args.grounds().eq([Ground::Base]);
    if args.traits == NONE && has_common_size && is_on_base {
        let more_machines = MORE.iter().filter(|(pauses, _)| args.pauses.contains(pauses));
        machines.extend(more_machines.map(|&(pauses, listed_traits)| {
            let extra_traits =
                MachineTraits { peak: listed_traits.peak.or(Some(PEAK)), ..listed_traits };
            TruthMachine { cpus, tenants, pauses, ground: Ground::Base, traits: extra_traits }
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

fn machine_text(machine: &TruthMachine) -> String {
    let TruthMachine { cpus, tenants, pauses, ground, traits: machine_traits } = machine;
    let mut words = vec![format!("{cpus} CPUs"), format!("{tenants} tenants")];
    words.extend((*ground != Ground::Base).then(|| ground_text(*ground)));
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

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn each_ground_has_a_machine_and_only_the_base_has_the_special_ones() {
        let machines = |options: &[&str]| {
            let line = [&["x", "--pauses=usual", "--cpus=72", "--tenants=32"], options].concat();
            list_machines(&Line::try_parse_from(line).unwrap().args)
        };
        let grounds = |options: &[&str]| -> Vec<Ground> {
            machines(options).iter().map(|machine| machine.ground).collect()
        };
        assert_eq!(grounds(&["--ground=all"]), Ground::value_variants());
        assert_eq!(grounds(&["--ground=late,full-link"]), [Ground::Late, Ground::FullLink]);
        assert!(machines(&[]).len() > 1, "the base has machines with each trait");
        assert!(Line::try_parse_from(["x", "--ground=moon"]).is_err());
        let late = machines(&["--ground=late"]);
        assert_eq!(machine_text(&late[0]), "72 CPUs, 32 tenants, late");
        // As the bench reads them.
        assert_eq!(serde_json::to_value(Ground::FullLink).unwrap(), "full-link");
    }
}
