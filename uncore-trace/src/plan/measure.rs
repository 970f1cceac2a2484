//! Resolves `-M` on this machine: which metrics, on which PMUs, from which events.
//!
//! Inputs are encoded like the events of groups, so that default filters and units apply.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use globset::{Glob, GlobMatcher};

use super::device::Subset;
use super::resolve::{ResolvedEvent, Resolver};
use crate::catalog::family::Family;
use crate::catalog::kernels;
use crate::catalog::metric::{DURATION_NS, Metric};
use crate::catalog::pattern::matches_any;
use crate::catalog::pmu_words::PmuWords;
use crate::catalog::vendor::{rest_of_group, why_left_out};
use crate::discover::name::stem;
use crate::suggest::{did_you_misspell, list_names};
use crate::text::{list_few, printable};

/// Number of names of metrics and families in an error, which keeps it below 500 characters.
const FEW: usize = 3;

/// One metric on one PMU.
#[derive(Debug, Clone)]
pub struct ResolvedMetric<'a> {
    /// The metric.
    pub metric: &'a Metric,
    /// The PMU and its family.
    pub words: PmuWords<'a>,
    /// The part of the PMU that it describes.
    pub subset: Subset,
    /// The events of the formula, in the order of first use; `None` if an event is missing here.
    pub inputs: Vec<(&'a str, Option<ResolvedEvent<'a>>)>,
    /// The constants of the formula.
    pub constants: BTreeMap<String, f64>,
}

impl ResolvedMetric<'_> {
    /// The inputs that are missing here.
    pub fn missing_inputs(&self) -> Vec<&str> {
        let missing = self.inputs.iter().filter(|(_, event)| event.is_none());
        missing.map(|(name, _)| *name).collect()
    }

    /// The filter of its events, or of those with the part's filter if there is one; empty if they
    /// have none, or if they differ.
    pub fn common_filter(&self) -> String {
        let subset_terms: Vec<String> =
            self.subset.terms.iter().map(|(term, value)| format!("{term}={value:#x}")).collect();
        let events = self.inputs.iter().filter_map(|(_, event)| event.as_ref());
        let filters = events.map(|event| &event.encoded.filter);
        let of_part = |filter: &&String| {
            subset_terms.iter().all(|term| filter.split(',').any(|filter_term| filter_term == term))
        };
        let mut filters: BTreeSet<&String> = filters.filter(of_part).collect();
        let only_filter = filters.pop_first().filter(|_| filters.is_empty());
        only_filter.cloned().unwrap_or_default()
    }

    /// Whether events are divided by events. These must be counted at the same time to be
    /// comparable.
    pub fn is_ratio(&self) -> bool {
        let divisors = self.metric.formula.divisor_names();
        self.inputs.len() > 1 && self.inputs.iter().any(|(name, _)| divisors.contains(name))
    }
}

impl<'a> Resolver<'a> {
    /// The metrics of `-M`, once for every PMU on which they can be computed. If a metric that was
    /// given by its full name lacks an input on some PMUs, a note says so.
    pub fn resolve_metrics(&mut self, names: &[String]) -> Result<Vec<ResolvedMetric<'a>>> {
        let mut measured = Vec::new();
        let mut seen = BTreeSet::new();
        for typed in names {
            let globbed = typed.contains(['*', '?', '[']);
            let matching = self.find_named(typed)?;
            for &(family, metric) in &matching {
                let mut resolved_here = self.resolve_metric(family, metric);
                if let Some(better) = self
                    .better_family_for_metric(family, metric)
                    .filter(|_| !resolved_here.is_empty())
                {
                    let note = format!(
                        "{}: not opened for {}, {better} counts the same traffic",
                        family.family, metric.name
                    );
                    self.notes.push(note);
                    continue;
                }
                let lacking = resolved_here
                    .extract_if(.., |candidate| !candidate.missing_inputs().is_empty());
                let lacking: Vec<_> = lacking.collect();
                if !globbed && !resolved_here.is_empty() {
                    // A family may have PMUs of other kinds.
                    let is_alike = |incomplete: &&ResolvedMetric<'_>| {
                        resolved_here.iter().any(|complete| {
                            stem(&complete.words.pmu.name) == stem(&incomplete.words.pmu.name)
                        })
                    };
                    self.notes.extend(lacking.iter().filter(is_alike).map(|incomplete| {
                        let (pmu, missing) = (
                            printable(&incomplete.words.pmu.name),
                            list_names(incomplete.missing_inputs()),
                        );
                        format!("{}: {pmu} is left out, it has no event {missing}", metric.name)
                    }));
                }
                if !resolved_here.is_empty() && seen.insert(std::ptr::from_ref(metric)) {
                    measured.extend(resolved_here);
                }
            }
            if !matching.iter().any(|(_, metric)| seen.contains(&std::ptr::from_ref(*metric))) {
                return Err(self.not_here_error(typed));
            }
            self.notes.extend(self.rest_of_group(typed, &measured)?);
        }
        self.notes.extend(self.memory_beside(&measured));
        Ok(measured)
    }

    /// A note on the metrics of one of perf's groups that are not counted; `None` if all are, or
    /// `typed` is no group.
    fn rest_of_group(
        &self,
        typed: &str,
        measured: &[ResolvedMetric<'a>],
    ) -> Result<Option<String>> {
        let Some(processor) = self.machine.generation_name() else { return Ok(None) };
        let is_counted = |name: &str| measured.iter().any(|counted| counted.metric.name == name);
        let group_metrics = self.find_named(typed)?.into_iter().filter(|(_, metric)| {
            metric.groups.iter().any(|group| group.eq_ignore_ascii_case(typed))
                && matches_any(&metric.processors, &processor)
        });
        let mut not_counted = rest_of_group(typed, &processor);
        not_counted.extend(group_metrics.map(|(_, metric)| metric.name.as_str()));
        not_counted.retain(|name| !is_counted(name));
        Ok((!not_counted.is_empty()).then(|| {
            format!(
                "-M {} does not count {}: they have events of the cores, of several PMUs, or that \
                 are not here",
                printable(typed),
                list_names(not_counted)
            )
        }))
    }

    /// Every metric of the catalog with its family, in the catalog's order.
    pub fn all_metrics(&self) -> impl Iterator<Item = (&'a Family, &'a Metric)> + use<'a> {
        let families = self.catalog.families.iter();
        families.flat_map(|family| family.metrics.iter().map(move |metric| (family, metric)))
    }

    /// A metric on each PMU of its family on this machine whose form it is, whether or not its
    /// inputs exist.
    pub fn resolve_metric(
        &mut self,
        family: &'a Family,
        metric: &'a Metric,
    ) -> Vec<ResolvedMetric<'a>> {
        let pmus: Vec<_> = self.family_pmus(family).collect();
        self.resolve_metric_on(family, metric, &pmus)
    }

    /// The same on these PMUs of the family.
    fn resolve_metric_on(
        &mut self,
        family: &'a Family,
        metric: &'a Metric,
        pmus: &[PmuWords<'a>],
    ) -> Vec<ResolvedMetric<'a>> {
        if metric.only_with.as_ref().is_some_and(|required| !self.has_family(required)) {
            return Vec::new();
        }
        let mut measured = Vec::new();
        for &words in pmus {
            let form = self.pmus.find_metric(words, &metric.name);
            if !form.is_some_and(|form| std::ptr::eq(form, metric)) {
                continue;
            }
            for subset in self.metric_subsets(family, metric, words) {
                measured.push(self.resolve_on_pmu(family, metric, words, &subset));
            }
        }
        measured
    }

    /// A metric on the whole of the first PMU of each vocabulary of its family, with the number of
    /// PMUs that have it.
    pub fn resolve_by_vocabulary(
        &mut self,
        family: &'a Family,
        metric: &'a Metric,
    ) -> Vec<(ResolvedMetric<'a>, usize)> {
        let mut measured = Vec::new();
        for (words, count) in self.pmus.family_vocabularies(&family.family) {
            let resolved = self.resolve_metric_on(family, metric, &[words]);
            measured.extend(resolved.into_iter().map(|metric| (metric, count)));
        }
        measured
    }

    /// The parts of one PMU for which the metric is computed; empty if an input has none.
    fn metric_subsets(
        &mut self,
        family: &Family,
        metric: &Metric,
        words: PmuWords<'a>,
    ) -> Vec<Subset> {
        let mut subsets = BTreeSet::new();
        for name in metric.formula.distinct_names() {
            if !family.is_event(name) {
                continue;
            }
            let typed = metric.inputs.get(name).map_or(&[][..], Vec::as_slice);
            let input_subsets = self.narrowing.select_subsets(words, name, typed);
            if input_subsets.is_empty() {
                return Vec::new();
            }
            subsets.extend(input_subsets);
        }
        // An input that is the same for all ports, such as a clock, is used for each of them.
        let of_ports: Vec<Subset> =
            subsets.iter().filter(|subset| !subset.terms.is_empty()).cloned().collect();
        if of_ports.is_empty() { subsets.into_iter().collect() } else { of_ports }
    }

    fn resolve_on_pmu(
        &mut self,
        family: &'a Family,
        metric: &'a Metric,
        words: PmuWords<'a>,
        subset: &Subset,
    ) -> ResolvedMetric<'a> {
        let mut inputs = Vec::new();
        let mut constants = Vec::new();
        for name in metric.formula.distinct_names() {
            if family.is_event(name) {
                inputs
                    .push((name, self.resolve_input(words, name, metric.inputs.get(name), subset)));
            } else if name != DURATION_NS {
                constants.push(name);
            }
        }
        let bits = |term: &str| {
            let format = words.term_format(term)?;
            let event = inputs.iter().find_map(|(_, event)| event.as_ref())?;
            Some(format.decode_value(&event.encoded.config))
        };
        let value = |name: &str| {
            let constant = family.find_constant(name, words.pmu)?;
            constant.resolve_value(&words.pmu.caps, constant.bits_of.as_deref().and_then(bits))
        };
        let constants: Vec<_> = constants.into_iter().map(|name| (name, value(name))).collect();
        let unknown = constants.iter().filter(|(_, value)| value.is_none());
        inputs.extend(unknown.map(|(name, _)| (*name, None)));
        let known =
            constants.iter().filter_map(|(name, value)| Some(((*name).to_owned(), (*value)?)));
        ResolvedMetric { metric, words, subset: subset.clone(), constants: known.collect(), inputs }
    }

    /// The family with whose events this machine counts the same traffic better, if any.
    pub fn better_family_for_metric(
        &self,
        family: &'a Family,
        metric: &'a Metric,
    ) -> Option<&'a str> {
        let better = family.yields_to.as_deref()?;
        let counts = |words: &PmuWords<'a>| {
            self.pmus.find_metric(*words, &metric.name).is_some_and(|form| words.has_inputs(form))
        };
        let vocabularies = self.pmus.family_vocabularies(better);
        vocabularies.iter().any(|(words, _)| counts(words)).then_some(better)
    }

    /// The metrics of the catalog that match a name or pattern; an error if there are none.
    fn find_named(&self, typed: &str) -> Result<Vec<(&'a Family, &'a Metric)>> {
        let glob = Glob::new(typed).with_context(|| format!("-M '{}'", printable(typed)))?;
        let glob = glob.compile_matcher();
        let named: Vec<_> =
            self.all_metrics().filter(|(_, metric)| names_it(typed, &glob, metric)).collect();
        if let Some(why) = self.left_out_reason(typed).filter(|_| named.is_empty()) {
            bail!(
                "perf's metric {} is not computed here: {why}; {}",
                printable(typed),
                self.offer_instead()
            );
        }
        if named.is_empty() {
            bail!(
                "there is no metric {}{}; `uncore-trace list metrics --all` shows all; {}",
                printable(typed),
                did_you_misspell(typed, self.all_metrics().map(|(_, metric)| &metric.name)),
                self.offer_instead()
            );
        }
        Ok(named)
    }

    /// Why perf's metric of this name for the processor is not imported.
    fn left_out_reason(&self, typed: &str) -> Option<&'static str> {
        let processor = self.machine.generation_name();
        why_left_out(typed, processor.as_deref().unwrap_or_default())
    }

    /// That metrics are of perf's tables for other processors only; `None` if one is for this one.
    fn of_others_reason(&self, named: &[(&Family, &Metric)]) -> Option<String> {
        let processor = self.machine.generation_name()?;
        let is_other = |metric: &Metric| {
            metric.vendor
                && !metric.processors.is_empty()
                && !matches_any(&metric.processors, &processor)
        };
        named.iter().all(|(_, metric)| is_other(metric)).then(|| {
            format!("perf's tables have it for other processors, not for {}", printable(&processor))
        })
    }

    /// The metrics that can be computed on this machine.
    fn metrics_here(&self) -> BTreeSet<&'a str> {
        let mut quiet = self.quiet_copy();
        let own_metrics = self.all_metrics().filter(|(_, metric)| !metric.vendor);
        let computable = own_metrics.filter(|(family, metric)| {
            quiet.better_family_for_metric(family, metric).is_none()
                && quiet
                    .resolve_by_vocabulary(family, metric)
                    .iter()
                    .any(|(resolved, _)| resolved.missing_inputs().is_empty())
        });
        computable.map(|(_, metric)| metric.name.as_str()).collect()
    }

    /// Why none of the metrics that match `typed` can be computed here.
    fn not_here_error(&mut self, typed: &str) -> anyhow::Error {
        let named: Vec<_> = self.find_named(typed).unwrap_or_default();
        let lacking = named.iter().find_map(|(family, metric)| {
            let resolved = self.resolve_metric(family, metric).into_iter().next()?;
            let missing = list_names(resolved.missing_inputs());
            Some(format!(
                "{} of this machine has no event {missing}",
                printable(&resolved.words.pmu.name)
            ))
        });
        let apart = self.narrowing.is_by_device()
            && named.iter().any(|(family, _)| self.has_family(&family.family));
        let apart = apart.then(|| "no PMU here counts the device with it".to_owned());
        let left_out = self.left_out_reason(typed).map(str::to_owned);
        let of_others = left_out.or_else(|| self.of_others_reason(&named));
        let groups: BTreeSet<_> = named.iter().map(|(family, _)| family.group).collect();
        let mut gaps =
            groups.into_iter().filter_map(|group| kernels::gap_reason(self.pmus.gaps(), group));
        let mut by_name =
            named.iter().filter_map(|(family, _)| self.by_name_hint(Some(family.group)));
        let why = of_others.or_else(|| gaps.next()).or(lacking).or(apart);
        let why = why.or_else(|| by_name.next());
        let why = why.unwrap_or_else(|| no_pmus(&named));
        let meant: BTreeSet<_> = named.iter().map(|(_, metric)| &metric.name).collect();
        let typed = printable(typed);
        let subject = match meant.len() {
            0 | 1 => format!("the metric {typed} cannot"),
            count => format!("none of the {count} metrics of -M '{typed}' can"),
        };
        anyhow::anyhow!("{subject} be computed here: {why}; {}", self.offer_instead())
    }

    /// The metrics or groups that this machine offers instead.
    fn offer_instead(&self) -> String {
        let computable = self.metrics_here();
        if computable.is_empty() {
            let groups = self.groups_here().join(",");
            return format!("no metric can be computed here: count groups instead, -p {groups}");
        }
        format!("the metrics here are {} (`uncore-trace list metrics`)", list_few(computable, FEW))
    }
}

/// A message that there is no PMU of the families of these metrics.
fn no_pmus(named: &[(&Family, &Metric)]) -> String {
    let families: BTreeMap<_, _> = named
        .iter()
        .map(|(family, metric)| {
            let beside = metric.only_with.as_ref().map(|required| format!(" beside {required}"));
            let pmus = family.names.join(" or ");
            let text = format!("{pmus} ({}){}", family.about, beside.unwrap_or_default());
            (&family.family, text)
        })
        .collect();
    if families.len() > FEW {
        let families = list_few(families.keys(), FEW);
        return format!("this machine has no PMU of the families {families}");
    }
    let texts: Vec<_> = families.into_values().collect();
    format!("this machine has no PMU {}", texts.join(", or "))
}

/// Whether the user's text selects this metric: by its name, of which it may be a pattern, or one
/// of its groups.
fn names_it(typed: &str, glob: &GlobMatcher, metric: &Metric) -> bool {
    let mut names = metric.groups.iter().chain(metric.vendor.then_some(&metric.name));
    if names.any(|name| typed.eq_ignore_ascii_case(name)) {
        return true;
    }
    !metric.vendor && glob.is_match(&metric.name)
}
