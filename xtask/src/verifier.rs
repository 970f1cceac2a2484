//! `cargo xtask verifier`: compares the verifier's figures for the BPF programs with
//! `docs/verifier.md`, or with `--renew` writes them there.
//!
//! The verifier gives up at a million instructions, and paths multiply: a change of one line can
//! multiply its work. It is easiest to find such a change on the day it is made.
#![expect(clippy::print_stdout, reason = "a task tells what it did")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;
use uncore_trace_ebpf::stamp::workspace_root;

use crate::lab::kernel::Series;
use crate::{lab, target};

/// The table, from the root of the repository.
const TABLE: &str = "docs/verifier.md";

/// The command that renews it.
const RENEW: &str = "cargo xtask verifier --renew";

/// The beginning of the table.
const HEAD: &str = "| program |";

/// Cell of a program that a kernel does not load.
const ABSENT: &str = "–";

/// Cell of a program that a kernel refuses.
const REFUSED: &str = "refused";

/// Growth that is always allowed: in a program of a few dozen instructions, one branch is half.
const SLACK: u64 = 16;

/// Options of `cargo xtask verifier`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Write the table again, for this machine's kernel and the lab's kernels
    #[arg(long)]
    renew: bool,
}

/// The output of `uncore-trace doctor --verifier --json`.
#[derive(Debug, Deserialize)]
struct VerifierOutput {
    kernel: String,
    arch: String,
    programs: Vec<ProgramReport>,
}

#[derive(Debug, Deserialize)]
struct ProgramReport {
    program: String,
    instructions: Option<u64>,
    states: Option<u64>,
    peak_states: Option<u64>,
}

/// Instructions, states, and the most states at one time; `None` if the program is refused.
type VerifierFigures = Option<[u64; 3]>;

/// A kernel of the table: its series, and its architecture as `uname -m` prints it.
type TableKernel = (Series, String);

/// Figures by kernel and program.
type Table = BTreeMap<TableKernel, BTreeMap<String, VerifierFigures>>;

/// Compares, or renews.
pub(crate) fn run(args: &Args) -> Result<()> {
    let local_report = run_doctor()?;
    if !args.renew {
        let wrong = list_problems(&local_report)?;
        ensure!(wrong.is_empty(), "{}", wrong.join("; "));
        println!(
            "verifier: {} programs on Linux {}: ok",
            local_report.programs.len(),
            local_report.kernel
        );
        return Ok(());
    }
    let mut table = Table::new();
    add_report(&mut table, &local_report)?;
    lab::on_each_kernel("verifier", |step| add_report(&mut table, &read_report(step)?))?;
    let path = table_path();
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    fs::write(&path, with_table(&text, &table)?)
        .with_context(|| format!("cannot write {}", path.display()))?;
    println!("verifier: wrote {} kernels into {TABLE}", table.len());
    Ok(())
}

/// Differences in the output of a step in a guest of the lab, one per line.
pub(crate) fn step_problems(step: &Path) -> Result<Vec<String>> {
    list_problems(&read_report(step)?)
}

fn table_path() -> PathBuf {
    workspace_root().join(TABLE)
}

fn run_doctor() -> Result<VerifierOutput> {
    let mut command = Command::new(target::debug_binary()?);
    command.args(["doctor", "--verifier", "--json"]);
    let output = command.output().context("cannot run uncore-trace doctor --verifier")?;
    if output.stdout.is_empty() {
        bail!("doctor --verifier failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout).context("cannot parse the output of doctor --verifier")
}

fn read_report(step: &Path) -> Result<VerifierOutput> {
    let file = step.join("log.txt");
    let text =
        fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let json = text.find('{').and_then(|begin| text.get(begin..=text.rfind('}')?));
    let json = json.with_context(|| format!("doctor --verifier said: {}", text.trim()))?;
    serde_json::from_str(json).with_context(|| format!("{} is not a report", file.display()))
}

fn report_kernel(report: &VerifierOutput) -> Result<TableKernel> {
    Ok((
        Series::from_release(&report.kernel).context("its kernel has no version")?,
        report.arch.clone(),
    ))
}

fn program_figures(line: &ProgramReport) -> VerifierFigures {
    Some([line.instructions?, line.states?, line.peak_states?])
}

fn add_report(table: &mut Table, report: &VerifierOutput) -> Result<()> {
    let figures_by_program =
        report.programs.iter().map(|line| (line.program.clone(), program_figures(line)));
    table.insert(report_kernel(report)?, figures_by_program.collect());
    Ok(())
}

fn list_problems(report: &VerifierOutput) -> Result<Vec<String>> {
    let path = table_path();
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    compare_report(&parse_table(&text)?, report)
}

/// A figure may grow by half; a program must be in the table, and must not be refused if it was
/// accepted before.
fn compare_report(table: &Table, report: &VerifierOutput) -> Result<Vec<String>> {
    let kernel = report_kernel(report)?;
    let name = kernel_name(&kernel);
    let Some(known) = table.get(&kernel) else {
        println!(
            "verifier: {TABLE} has no column for Linux {name}, so nothing is compared \
                  ({RENEW} adds it)"
        );
        return Ok(Vec::new());
    };
    let mut wrong = Vec::new();
    for line in &report.programs {
        let program = &line.program;
        let renew = format!("if this is intended, {RENEW} updates the table");
        match (known.get(program), program_figures(line)) {
            (None, _) => wrong.push(format!(
                "{program} is not in {TABLE} for Linux {name}: {RENEW} updates the table"
            )),
            (Some(Some(_)), None) => {
                wrong.push(format!(
                    "Linux {name} refuses {program}, which it accepted before: \
                                    {renew}"
                ));
            }
            (Some(None), _) => {}
            (Some(Some(known)), Some(measured)) => {
                let names = ["instructions", "states", "states at one time"];
                for ((quantity, known), value) in names.into_iter().zip(known).zip(measured) {
                    if value > known + (known / 2).max(SLACK) {
                        wrong.push(format!(
                            "verifying {program} takes {value} {quantity} on Linux {name}, more \
                             than 1.5 times the {known} in {TABLE}: {renew}"
                        ));
                    }
                }
            }
        }
    }
    Ok(wrong)
}

fn kernel_name((series, arch): &TableKernel) -> String {
    format!("{series} {arch}")
}

/// The text with its table replaced by this one.
fn with_table(text: &str, table: &Table) -> Result<String> {
    let is_table = |line: &&str| line.starts_with('|');
    let begin = text.find(HEAD).with_context(|| format!("{TABLE} has no line {HEAD}"))?;
    let old: usize = text[begin..].split_inclusive('\n').take_while(is_table).map(str::len).sum();
    Ok(format!("{}{}{}", &text[..begin], render_table(table), &text[begin + old..]))
}

fn render_table(table: &Table) -> String {
    let mut programs: Vec<&String> = table.values().flat_map(BTreeMap::keys).collect();
    programs.sort();
    programs.dedup();
    let kernels = table.keys().map(|kernel| format!(" {} |", kernel_name(kernel)));
    let mut text = format!("{HEAD}{}\n|---|", kernels.collect::<String>());
    text.push_str(&"---|".repeat(table.len()));
    text.push('\n');
    for program in programs {
        // Writing to a String cannot fail.
        let _ok = write!(text, "| `{program}` |");
        for figures in table.values() {
            let _ok = match figures.get(program) {
                Some(Some([instructions, states, peak])) => {
                    write!(text, " {instructions} / {states} / {peak} |")
                }
                Some(None) => write!(text, " {REFUSED} |"),
                None => write!(text, " {ABSENT} |"),
            };
        }
        text.push('\n');
    }
    text
}

fn parse_table(text: &str) -> Result<Table> {
    let mut lines = text.lines().skip_while(|line| !line.starts_with(HEAD));
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let head = cells(lines.next().with_context(|| format!("{TABLE} has no line {HEAD}"))?);
    let kernels: Vec<TableKernel> = head[1..]
        .iter()
        .map(|name| {
            let (series, arch) = name.split_once(' ').context("a kernel has no machine")?;
            Ok((series.parse()?, arch.to_owned()))
        })
        .collect::<Result<_>>()?;
    let mut table: Table =
        kernels.iter().cloned().map(|kernel| (kernel, BTreeMap::new())).collect();
    for line in lines.skip(1).take_while(|line| line.starts_with('|')) {
        let row = cells(line);
        ensure!(row.len() == head.len(), "{TABLE} has another number of columns in: {line}");
        let program = row[0].trim_matches('`');
        for (kernel, cell) in kernels.iter().zip(&row[1..]) {
            let figures = match cell.as_str() {
                ABSENT => continue,
                REFUSED => None,
                numbers => {
                    Some(parse_figures(numbers).with_context(|| format!("{TABLE} has: {line}"))?)
                }
            };
            table.entry(kernel.clone()).or_default().insert(program.to_owned(), figures);
        }
    }
    Ok(table)
}

fn parse_figures(cell: &str) -> Option<[u64; 3]> {
    let numbers: Option<Vec<u64>> = cell.split(" / ").map(|number| number.parse().ok()).collect();
    numbers?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::machine::LabMachine;

    const TEXT: &str = "# The verifier\n\nBefore.\n\n| program | 6.1 x86_64 | 7.2 aarch64 \
                        |\n|---|---|---|\n| `arm` | refused | 1000 / 400 / 100 |\n| `probe` | 8 / \
                        0 / 0 | – |\n\nAfter.\n";

    fn report(kernel: &str, arch: &str, programs: &[(&str, VerifierFigures)]) -> VerifierOutput {
        let line = |&(program, figures): &(&str, VerifierFigures)| ProgramReport {
            program: program.to_owned(),
            instructions: figures.map(|it| it[0]),
            states: figures.map(|it| it[1]),
            peak_states: figures.map(|it| it[2]),
        };
        let programs = programs.iter().map(line).collect();
        VerifierOutput { kernel: kernel.to_owned(), arch: arch.to_owned(), programs }
    }

    /// Differences on Linux 7.2.
    fn wrong(programs: &[(&str, VerifierFigures)]) -> Vec<String> {
        compare_report(
            &parse_table(TEXT).unwrap(),
            &report("7.2.13+deb14-arm64", "aarch64", programs),
        )
        .unwrap()
    }

    #[test]
    fn half_more_is_wrong_and_less_is_not() {
        assert!(wrong(&[("arm", Some([1500, 600, 150]))]).is_empty());
        assert!(wrong(&[("arm", Some([10, 4, 1]))]).is_empty());
        for figures in [[1501, 400, 100], [1000, 601, 100], [1000, 400, 151]] {
            let said = wrong(&[("arm", Some(figures))]);
            assert_eq!(said.len(), 1, "{said:?}");
            assert!(said[0].starts_with("verifying arm takes ") && said[0].contains(RENEW));
        }
        // One more branch in a small program.
        let small = report("6.1.0-50", "x86_64", &[("probe", Some([24, 3, 3]))]);
        assert!(compare_report(&parse_table(TEXT).unwrap(), &small).unwrap().is_empty());
    }

    #[test]
    fn what_is_not_in_the_table_or_is_refused_is_wrong() {
        let said = wrong(&[("new", Some([1, 1, 1])), ("probe", Some([1, 1, 1])), ("arm", None)]);
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(said.iter().all(|line| line.contains(RENEW)), "{said:?}");
        assert!(said[2].starts_with("Linux 7.2 aarch64 refuses arm"), "{said:?}");
        let table = parse_table(TEXT).unwrap();
        let old = report("6.1.0-50", "x86_64", &[("arm", None)]);
        assert!(compare_report(&table, &old).unwrap().is_empty());
        // A kernel that is not in the table.
        let other = report("6.6.1", "x86_64", &[("new", None)]);
        assert!(compare_report(&table, &other).unwrap().is_empty());
    }

    #[test]
    fn a_table_is_read_as_it_was_written() {
        let table = parse_table(TEXT).unwrap();
        assert_eq!(with_table(TEXT, &table).unwrap(), TEXT);
        assert_eq!(table.values().map(BTreeMap::len).collect::<Vec<_>>(), [2, 1]);
    }

    #[test]
    fn the_table_has_every_kernel_that_the_lab_verifies_on() {
        let table = parse_table(&fs::read_to_string(table_path()).unwrap()).unwrap();
        let lab = workspace_root().join("tests/lab");
        let mut kernels = 0;
        for name in LabMachine::machine_names(&lab).unwrap() {
            let machine = LabMachine::read(&lab, &name).unwrap();
            if machine.scenarios.iter().any(|name| name == "verifier") {
                for &series in &machine.series {
                    let kernel = (series, machine.arch.uname_machine().to_owned());
                    assert!(table.contains_key(&kernel), "{kernel:?}: {RENEW}");
                    kernels += 1;
                }
            }
        }
        assert!(kernels > 1);
    }
}
