//! `uncore-trace list`: what can be counted on a machine, as text or JSON.
//!
//! A part is one file with a serializable `Row`, a function `rows` that makes the rows, and a
//! function `render` that prints them in a [`View`]. To add a part, add a file and its line in the
//! list of parts.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::rc::Rc;

use anyhow::{Context, Result};
use serde::Serialize;

use super::catalog::CatalogArgs;
use super::heading::{COUNT, PRINT};
use super::root::RootArg;
use crate::catalog::Catalog;
use crate::discover::{self, Machine};
use crate::plan::pmus::PmuIndex;
use crate::plan::uncounted::find_uncounted;
use crate::table::{ColumnFit, TextTable};
use crate::terminal;
use crate::text::{printable, wrapped};

mod holders;
pub mod summary;

/// How the text is shown.
#[derive(Debug, Clone, Copy, Default)]
pub struct View {
    /// Whether to show what other machines have, and all events by the vendor's names.
    pub shows_all: bool,
    /// Most cells of a line; `None`: no limit.
    pub width: Option<usize>,
}

/// Output format.
#[derive(Debug, Clone, Copy)]
pub enum ListForm {
    /// For people.
    Text(View),
    /// For programs: everything, also what is not on this machine.
    Json,
}

macro_rules! parts {
    ($($(#[$doc:meta])* $module:ident: $name:ident,)*) => {
        $(mod $module;)*

        /// The parts that are listed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
        pub enum What {
            /// All parts.
            All,
            $($(#[$doc])* $name,)*
        }

        #[derive(Debug, Serialize)]
        struct List {
            $(
                #[serde(skip_serializing_if = "Option::is_none")]
                $module: Option<Vec<$module::Row>>,
            )*
            /// Files that could not be read or are not what their names say, one line each.
            problems: Vec<String>,
        }

        impl List {
            fn new(pmus: &Rc<PmuIndex<'_>>, what: What) -> Self {
                let wanted = |part| what == What::All || what == part;
                Self {
                    $($module: wanted(What::$name).then(|| $module::rows(pmus)),)*
                    problems: problems(pmus),
                }
            }

            /// The text of each selected part.
            fn parts(&self, view: View) -> Vec<String> {
                let parts = [$(self.$module.as_deref().map(|rows| $module::render(rows, view))),*];
                parts.into_iter().flatten().collect()
            }
        }
    };
}

parts! {
    /// The PMUs.
    pmus: Pmus,
    /// The groups of `-p` and the counters that they open here.
    groups: Groups,
    /// The events of each kind of PMU.
    events: Events,
    /// The metrics of `-M`.
    metrics: Metrics,
    /// The devices, the PMU and filter that count each, and who has its device files open.
    devices: Devices,
    /// The PMUs that are usual for such a machine but absent here, and why.
    absent: Absent,
}

/// List what can be counted on this machine, and what is absent
///
/// The list has these parts: PMUs, groups, events, metrics, devices, and the PMUs that are usual
/// for such a machine but absent here. For a group, `list` shows the counters that
/// `record -p GROUP` would open; for a device, it shows the PMU and filter of
/// `record --device DEVICE`, the device files, and who has them open. On a terminal the tables fit
/// its width: long texts are wrapped, and columns that do not fit are left out; the last line of a
/// table names them.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples: what can be counted here, what `record -p pcie` would open, and all
of it for programs
  uncore-trace list
  uncore-trace list groups
  uncore-trace list --json")]
pub struct Args {
    /// Part to list
    #[arg(value_enum, default_value = "all")]
    what: What,

    #[command(flatten)]
    catalog: CatalogArgs,

    /// Also show PMU families and metrics of other machines, and all events by the vendor's names
    #[arg(long, help_heading = COUNT)]
    all: bool,

    /// Show all columns on one line, whatever the width, also on a terminal
    #[arg(long, help_heading = PRINT)]
    wide: bool,

    /// Print JSON with all parts, also PMU families and metrics of other machines
    #[arg(long, conflicts_with_all = ["all", "wide"], help_heading = PRINT)]
    json: bool,

    #[command(flatten)]
    root: RootArg,
}

/// Lists the machine under `root`; exit code 0.
pub fn run(args: &Args) -> Result<u8> {
    let width = terminal::columns().filter(|_| !args.wide);
    let form = if args.json {
        ListForm::Json
    } else {
        ListForm::Text(View { shows_all: args.all, width })
    };
    let text = render_list(
        &discover::machine(args.root.root_dir())?,
        &args.catalog.load_catalog()?,
        args.what,
        form,
    )?;
    io::stdout().lock().write_all(text.as_bytes()).context("cannot write the list")?;
    Ok(0)
}

/// The list of `selection` for `machine`, ending in a newline.
///
/// # Errors
///
/// It cannot be written as JSON.
pub fn render_list(
    machine: &Machine,
    catalog: &Catalog,
    selection: What,
    form: ListForm,
) -> Result<String> {
    let pmus = Rc::new(PmuIndex::new(machine, catalog));
    let selected_list = List::new(&pmus, selection);
    let view = match form {
        ListForm::Text(view) => view,
        ListForm::Json => {
            let text = serde_json::to_string_pretty(&selected_list);
            return Ok(text.context("cannot write the list as JSON")? + "\n");
        }
    };
    let text = selected_list.render_parts(view);
    let Some(groups) = selected_list.groups.as_deref().filter(|_| selection == What::All) else {
        return Ok(text);
    };
    Ok(format!("{}\n{text}", summary::groups_summary(&pmus, groups, view.width)))
}

/// The names that an option of `record`, `stat` and `top` takes on a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum OptionNames {
    /// Of `-p`.
    Groups,
    /// Of `-M`.
    Metrics,
    /// Of `-e`.
    Events,
}

/// The names, sorted, without duplicates.
pub fn option_names(
    machine: &Machine,
    catalog: &Catalog,
    name_kind: OptionNames,
) -> BTreeSet<String> {
    let pmus = Rc::new(PmuIndex::new(machine, catalog));
    match name_kind {
        OptionNames::Groups => {
            let rows = groups::rows(&pmus);
            let open_groups = rows.iter().filter(|row| row.counters > 0);
            open_groups.map(|row| row.group.to_string()).chain(["all".to_owned()]).collect()
        }
        OptionNames::Metrics => {
            let rows = metrics::rows(&pmus);
            rows.iter().filter_map(metrics::Row::computed_name).map(str::to_owned).collect()
        }
        OptionNames::Events => events::rows(&pmus).iter().map(events::Row::option_name).collect(),
    }
}

fn problems(pmus: &Rc<PmuIndex<'_>>) -> Vec<String> {
    let mut problems = pmus.machine().problems.clone();
    problems.extend(find_uncounted(pmus));
    for words in pmus.all_pmus().iter().filter(|words| words.family.is_none()) {
        let pmu = words.pmu;
        let impostor = pmus.catalog().find_impostor(pmu);
        if let (Some(family), Some(identifier)) = (impostor, &pmu.identifier) {
            problems.push(format!(
                "{}: its identifier {} is not that of {}: the kernel's driver may be older than \
                 the hardware, groups leave it out",
                printable(&pmu.name),
                printable(identifier),
                family.family
            ));
        }
    }
    problems
}

impl List {
    fn render_parts(&self, view: View) -> String {
        let mut text = self.parts(view).join("\n");
        for (index, problem) in self.problems.iter().enumerate() {
            text.push_str(if index == 0 { "\n" } else { "" });
            text.push_str(&wrapped("problem: ", &printable(problem), view.width));
        }
        text
    }
}

/// A column of a table: its head, how it is fitted, and the cell of a row.
type CellColumn<'a, R> = (&'static str, ColumnFit, &'a dyn Fn(&R) -> String);

/// The rows as a table.
fn draw_rows<'r, R: 'r>(
    rows: impl IntoIterator<Item = &'r R>,
    columns: &[CellColumn<'_, R>],
    view: View,
) -> String {
    let mut table = TextTable::new(columns.iter().map(|(head, fit, _)| (*head, *fit)));
    for row in rows {
        table.add_row(columns.iter().map(|(.., cell)| cell(row)));
    }
    table.to_listing(view.width)
}

/// A cell: text of the machine, escaped; `-` for `None`.
fn cell_text(text: Option<&str>) -> String {
    text.filter(|text| !text.is_empty()).map_or_else(|| "-".to_owned(), |t| printable(t).into())
}
