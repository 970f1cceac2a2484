//! The first pass over `fabric`: finds the totals and tenants, so that the second pass can write
//! without keeping rows.

use std::collections::{BTreeMap, HashMap, HashSet};

use anyhow::Result;

use super::SelectedRows;
use super::counts::{ExportNames, TenantShare};
use crate::clock::TimeSpan;
use crate::schema::owner;

/// Who has a series of its own in a total.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TenantOrOthers {
    /// One tenant, by its index in [`ExportNames::tenants`].
    Tenant(usize),
    /// All tasks without a line of their own.
    Others,
}

/// A counter in the selected time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SurveyedCounter {
    /// Index in [`ExportNames::counts`].
    pub count_index: usize,
    /// Begin of its first window, `CLOCK_MONOTONIC`, ns.
    pub begin_ns: i64,
    /// End of its last window, `CLOCK_MONOTONIC`, ns.
    pub end_ns: i64,
    /// Spans in which it did not count because its CPU was offline.
    pub holes: Vec<TimeSpan<i64>>,
}

/// The result of the first pass.
#[derive(Debug)]
pub(super) struct ExportSurvey {
    /// All totals and tenants.
    pub names: ExportNames,
    /// Every counter with rows.
    pub counters: BTreeMap<i32, SurveyedCounter>,
    /// Most frequent length of a window, ns.
    pub window_ns: i64,
    /// The lines of each [`CountDescription`](super::counts::CountDescription), the largest tenants
    /// first.
    pub lines: Vec<Vec<TenantOrOthers>>,
    /// Line of each pair of total and tenant.
    line_index: HashMap<(usize, usize), usize>,
}

impl SurveyedCounter {
    fn new(share: &TenantShare) -> Self {
        let (begin_ns, end_ns) = (share.begin_ns(), share.end_ns);
        Self { count_index: share.count_index, begin_ns, end_ns, holes: Vec::new() }
    }

    fn add_window(&mut self, share: &TenantShare) {
        if share.begin_ns() > self.end_ns {
            self.holes.push(TimeSpan::new(self.end_ns, share.begin_ns()));
        }
        self.end_ns = self.end_ns.max(share.end_ns);
    }
}

impl ExportSurvey {
    /// Reads every row. A task has a line of its own if it is among the `top` largest sums of the
    /// quantity over all links and PMUs; other owners always have one. `names` has
    /// none yet.
    ///
    /// # Errors
    ///
    /// The table cannot be read.
    pub(super) fn read_fabric(
        fabric: &SelectedRows<'_>,
        mut names: ExportNames,
        top: usize,
    ) -> Result<Self> {
        let mut counters: BTreeMap<i32, SurveyedCounter> = BTreeMap::new();
        let mut sums: HashMap<(usize, usize), f64> = HashMap::new();
        let mut lengths: BTreeMap<i64, u64> = BTreeMap::new();
        names.each_share(fabric, |share| {
            *lengths.entry(share.length_ns).or_default() += 1;
            counters
                .entry(share.counter)
                .or_insert_with(|| SurveyedCounter::new(share))
                .add_window(share);
            *sums.entry((share.count_index, share.tenant)).or_default() +=
                share.value.unwrap_or(0.0);
            Ok(())
        })?;
        let largest = largest_tenants(&names, &sums, top);
        let window_ns = lengths.iter().max_by_key(|(_, rows)| **rows).map_or(1, |(ns, _)| *ns);
        let mut survey =
            Self { names, counters, window_ns, lines: Vec::new(), line_index: HashMap::new() };
        survey.choose_lines(&sums, &largest);
        Ok(survey)
    }

    /// Passes every row to `on_share` in a second pass, with its line.
    ///
    /// # Errors
    ///
    /// The table cannot be read, or an error of `on_share`.
    pub(super) fn each_share(
        &mut self,
        fabric: &SelectedRows<'_>,
        mut on_share: impl FnMut(&TenantShare, Option<usize>) -> Result<()>,
    ) -> Result<()> {
        let Self { names, line_index: line_numbers, .. } = self;
        names.each_share(fabric, |share| {
            on_share(share, line_numbers.get(&(share.count_index, share.tenant)).copied())
        })
    }

    fn choose_lines(
        &mut self,
        sums: &HashMap<(usize, usize), f64>,
        largest: &HashSet<(usize, usize)>,
    ) {
        let mut sums_by_count: Vec<Vec<(usize, f64)>> = vec![Vec::new(); self.names.counts().len()];
        for ((of_count, tenant), sum) in sums {
            sums_by_count[*of_count].push((*tenant, *sum));
        }
        for (count_index, mut tenant_sums) in sums_by_count.into_iter().enumerate() {
            let tenants = self.names.tenants();
            let is_other = |tenant: usize| {
                tenants[tenant].is_task() && !largest.contains(&(count_index, tenant))
            };
            // Tasks come before other owners, and those without a line of their own last of them.
            let rank = |tenant: usize| {
                let owner = &tenants[tenant].owner;
                (owner::KINDS.iter().position(|owner_kind| owner_kind == owner), is_other(tenant))
            };
            tenant_sums.sort_by(|(a, sum_a), (b, sum_b)| {
                let by_sum = sum_b.total_cmp(sum_a);
                rank(*a).cmp(&rank(*b)).then(by_sum).then_with(|| tenants[*a].cmp(&tenants[*b]))
            });
            let mut lines: Vec<TenantOrOthers> = Vec::new();
            for (tenant, _) in tenant_sums {
                let line = if is_other(tenant) {
                    TenantOrOthers::Others
                } else {
                    TenantOrOthers::Tenant(tenant)
                };
                if lines.last() != Some(&line) {
                    lines.push(line);
                }
                self.line_index.insert((count_index, tenant), lines.len() - 1);
            }
            self.lines.push(lines);
        }
    }
}

/// For each total, the tasks with the `top` largest sums of its quantity.
fn largest_tenants(
    names: &ExportNames,
    sums: &HashMap<(usize, usize), f64>,
    top: usize,
) -> HashSet<(usize, usize)> {
    let mut quantities: BTreeMap<&[String; 2], HashMap<usize, f64>> = BTreeMap::new();
    for ((count_index, tenant), sum) in sums {
        if names.tenants()[*tenant].is_task() {
            let quantity = &names.counts()[*count_index].quantity;
            *quantities.entry(quantity).or_default().entry(*tenant).or_default() += sum;
        }
    }
    let mut chosen: HashSet<(&[String; 2], usize)> = HashSet::new();
    for (quantity, tenants) in quantities {
        let mut tenants: Vec<(usize, f64)> = tenants.into_iter().collect();
        tenants.sort_by(|(a, sum_a), (b, sum_b)| {
            sum_b.total_cmp(sum_a).then_with(|| names.tenants()[*a].cmp(&names.tenants()[*b]))
        });
        chosen.extend(tenants.into_iter().take(top).map(|(tenant, _)| (quantity, tenant)));
    }
    let is_chosen = |(count_index, tenant): &(usize, usize)| {
        chosen.contains(&(&names.counts()[*count_index].quantity, *tenant))
    };
    sums.keys().copied().filter(is_chosen).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::fabric;
    use crate::view::grouping::GroupBy;
    use crate::view::sample::{Broken, INTACT, SampleRecording};
    use crate::view::span::SelectedTime;

    fn lines(broken: &Broken, top: usize) -> Vec<Vec<String>> {
        let sample = SampleRecording::new(false, broken);
        let recording = sample.open();
        let table = recording.open_table(&fabric::TABLE).unwrap();
        let span = SelectedTime::between_moments(&recording, &table, None, None).unwrap().unwrap();
        let names = ExportNames::new(&table, GroupBy::Cgroup, &recording).unwrap();
        let survey =
            ExportSurvey::read_fabric(&SelectedRows::new(&table, &span), names, top).unwrap();
        assert_eq!(survey.counters[&1].end_ns - survey.counters[&1].begin_ns, 3_000_000_000);
        let name = |line: &TenantOrOthers| match line {
            TenantOrOthers::Tenant(tenant) => survey.names.tenants()[*tenant].display_name(),
            TenantOrOthers::Others => "(other tenants)".to_owned(),
        };
        survey.lines.iter().map(|lines| lines.iter().map(name).collect()).collect()
    }

    #[test]
    fn the_largest_tenants_and_all_other_owners_have_lines() {
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            vec![names; 2]
        };
        let tenant = "/tenant\\u{1b}[2J";
        assert_eq!(lines(&INTACT, 2), of(&[tenant, "/other", "(irq)", "(idle)"]));
        assert_eq!(lines(&INTACT, 1), of(&[tenant, "(other tenants)", "(irq)", "(idle)"]));
        assert_eq!(lines(&INTACT, 0), of(&["(other tenants)", "(irq)", "(idle)"]));
    }

    #[test]
    fn a_tenant_is_ranked_by_the_quantity_wherever_it_was_counted() {
        let broken = Broken {
            // Both counters count the same quantity; the second has rows only of the tenant that is
            // small in the first.
            fabric: |row, _| {
                (row.event, row.unit) = ("read_bytes", "bytes");
                row.pmu = if row.counter == 0 { "pmu_0" } else { "pmu_1" };
                if row.counter == 1 {
                    row.value = row.value.map(|_| if row.pid == Some(200) { 1e9 } else { 0.0 });
                }
                true
            },
            ..INTACT
        };
        let lines = lines(&broken, 1);
        assert_eq!(lines[0][..2], ["/other", "(other tenants)"]);
        assert_eq!(lines[1][..2], ["/other", "(other tenants)"]);
    }
}
