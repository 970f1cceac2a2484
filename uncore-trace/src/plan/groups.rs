//! Resolves the groups of `-p` on this machine.

use anyhow::{Result, bail, ensure};

use super::device::typed;
use super::resolve::{ResolvedEvent, Resolver};
use super::traffic::AUTO;
use crate::catalog::family::Family;
use crate::catalog::group::Group;
use crate::catalog::kernels;
use crate::catalog::pmu_words::PmuWords;
use crate::catalog::spec::Term;
use crate::suggest::{did_you_mean, list_names};
use crate::text::printable;

/// Why the devices in [`KernelCountedDevice::counts_again`] are left out.
///
/// [`KernelCountedDevice::counts_again`]:
/// crate::discover::statistics::KernelCountedDevice::counts_again
const AGAIN: &str =
    "other devices count these bytes too, or the bytes stay in memory; --device NAME counts one";

/// A group that opens nothing here, with the reason if known.
struct MissingGroup {
    group: Group,
    why: Option<String>,
}

impl<'a> Resolver<'a> {
    /// The events of the groups of `-p`, in order; `all` is every group that resolves here, `auto`
    /// is all traffic, or else the groups host and io. With `allow_missing`, a group that opens
    /// nothing is a warning if another one opens something.
    ///
    /// # Errors
    ///
    /// A name is not a group, or groups open nothing; one error lists all of them.
    pub fn resolve_groups(
        &mut self,
        names: &[String],
        allow_missing: bool,
    ) -> Result<Vec<ResolvedEvent<'a>>> {
        let mut resolved = Vec::new();
        let mut missing = Vec::new();
        for typed in names {
            if typed == "all" {
                resolved
                    .extend(Group::ALL.iter().flat_map(|(group, _)| self.resolve_group(*group)));
                continue;
            }
            if typed == AUTO {
                let traffic = self.traffic_events();
                let is_empty = traffic.is_empty();
                resolved.extend(traffic);
                if is_empty {
                    self.notes.extend(self.by_name_hint(None));
                    resolved.extend(self.resolve_group(Group::Host));
                    resolved.extend(self.resolve_group(Group::Io));
                }
                continue;
            }
            let Some(group) = Group::from_name(typed) else {
                let known = || Group::ALL.iter().map(|(_, name)| *name).chain([AUTO, "all"]);
                bail!(
                    "there is no group '{}'{}; the groups are {}",
                    printable(typed),
                    did_you_mean(typed, known()),
                    list_names(known())
                );
            };
            let note_count = self.notes.len();
            let opened = self.resolve_group(group);
            if opened.is_empty() {
                let last_note =
                    || self.notes.get(note_count).or(self.narrowing.refused.as_ref()).cloned();
                let gap = kernels::gap_reason(self.pmus.gaps(), group);
                let why = gap.or_else(|| self.by_name_hint(Some(group))).or_else(last_note);
                missing.push(MissingGroup { group, why });
            }
            resolved.extend(opened);
        }
        if allow_missing && !resolved.is_empty() {
            for MissingGroup { group, why } in missing {
                let why = why.unwrap_or_else(|| "no PMU of this machine is in it".to_owned());
                self.warnings.push(format!("the group {group} is not counted: {why}"));
            }
            return Ok(resolved);
        }
        ensure!(missing.is_empty(), "{}", self.refusal_text(&missing, resolved.is_empty()));
        Ok(resolved)
    }

    /// Why the groups of `-p` cannot be counted, in one line.
    fn refusal_text(&self, missing: &[MissingGroup], is_all: bool) -> String {
        let offer = if is_all { "" } else { "; add --allow-missing to count the others" };
        let (mut sentences, mut unexplained) = (Vec::new(), Vec::new());
        for MissingGroup { group, why } in missing {
            match why {
                Some(why) => sentences
                    .push(format!("the group {group} opens nothing on this machine: {why}")),
                None => unexplained.push(group.name()),
            }
        }
        if !unexplained.is_empty() {
            let plural = if unexplained.len() > 1 { "s" } else { "" };
            sentences.push(format!(
                "no PMU of this machine is in the group{plural} {}; the groups here are {}; \
                 uncore-trace doctor says whether a driver is missing",
                list_names(unexplained),
                list_names(self.groups_here())
            ));
        }
        sentences.join("; ") + offer
    }

    /// The groups that open something on this machine.
    pub fn groups_here(&self) -> Vec<&'static str> {
        let mut quiet = self.quiet_copy();
        let mut opens = |group| !quiet.resolve_group(group).is_empty();
        Group::ALL.iter().filter(|(group, _)| opens(*group)).map(|(_, name)| *name).collect()
    }

    /// All events that a group opens here: for each PMU, those that its family lists.
    pub fn resolve_group(&mut self, group: Group) -> Vec<ResolvedEvent<'a>> {
        let mut resolved = Vec::new();
        for family in &self.catalog.families {
            let Some(globs) = family.opens.get(&group) else { continue };
            let (pmus, left_out): (Vec<_>, Vec<_>) =
                self.family_pmus(family).partition(|words| self.narrowing.opens_pmu(words.pmu));
            if !self.narrowing.is_by_device() && !left_out.is_empty() {
                let names = list_names(left_out.iter().map(PmuWords::pmu_name));
                self.notes.push(format!("{group} leaves out {names}: {AGAIN}"));
            }
            let has_match = |glob: &String| {
                pmus.iter().any(|words| !self.pmus.matching_names(*words, glob).is_empty())
            };
            if pmus.is_empty() || (!globs.iter().any(has_match) && self.is_replaced(family, group))
            {
                continue;
            }
            let mut event_globs: Vec<&String> =
                self.persistent_events(family, group).iter().collect();
            if let Some(better) = self.better_family_for_group(family, group) {
                self.notes.push(format!(
                    "{}: not opened for {group}, {better} counts the same traffic",
                    family.family
                ));
                // The better one may not count persistent memory.
                event_globs.retain(|_| !self.counts_persistent(better));
            } else {
                for glob in globs.iter().filter(|glob| !has_match(glob)) {
                    self.notes.push(format!("{}: no event {glob} on this machine", family.family));
                }
                event_globs.splice(0..0, globs);
            }
            let mut opened = Vec::new();
            for words in &pmus {
                opened.extend(
                    event_globs.iter().flat_map(|glob| self.resolve_glob(*words, glob, group)),
                );
            }
            if !self.narrowing.is_by_device() {
                self.warnings.extend(Self::boxes_left_out(group, &pmus, &opened));
            }
            resolved.extend(opened);
        }
        if group == Group::Mem {
            self.notes.extend(self.memory_not_counted(&resolved));
        }
        resolved
    }

    /// The family that counts the same traffic better, if it has an event for the group here.
    fn better_family_for_group(&self, family: &'a Family, group: Group) -> Option<&'a str> {
        let better = family.yields_to.as_deref()?;
        self.opens_any(better, group).then_some(better)
    }

    /// Whether another family counts the traffic of a better one that has no event for the group
    /// here.
    fn is_replaced(&self, family: &Family, group: Group) -> bool {
        let yields = |candidate: &&Family| candidate.yields_to.as_ref() == Some(&family.family);
        let mut yielding = self.catalog.families.iter().filter(yields);
        yielding.any(|yielding_family| self.opens_any(&yielding_family.family, group))
    }

    /// Whether a PMU of the family called `name` has an event for the group here.
    fn opens_any(&self, name: &str, group: Group) -> bool {
        self.pmus.family_pmus(name).iter().any(|words| self.pmus.has_group_events(*words, group))
    }

    /// The events of one PMU that match a group's pattern.
    fn resolve_glob(
        &mut self,
        words: PmuWords<'a>,
        glob: &str,
        group: Group,
    ) -> Vec<ResolvedEvent<'a>> {
        let mut resolved = Vec::new();
        for &event in self.pmus.matching_names(words, glob).iter() {
            let whole = || vec![Vec::new()];
            let sources =
                words.family.map_or_else(whole, |family| family.parts_by_source(event, group));
            let subsets = self.narrowing.select_subsets(words, event, &[]);
            let pairs = subsets
                .iter()
                .flat_map(|subset| sources.iter().map(move |source_terms| (subset, source_terms)));
            for (subset, source) in pairs {
                let mut terms = vec![Term::bare(event, 1)];
                terms.extend(subset.typed_terms(1));
                terms.extend(typed(source, 1));
                match self.pmus.encode_terms(words, &terms, &[]) {
                    Ok(encoded) => {
                        let (group, die) = (group.name(), subset.die);
                        let functions = subset.functions.clone();
                        resolved.push(ResolvedEvent { words, group, encoded, die, functions });
                    }
                    Err(error) => self.notes.push(error.message),
                }
            }
        }
        resolved
    }
}
