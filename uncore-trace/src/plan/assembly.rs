//! Turns resolved events into counters: one per reader CPU, no event twice, groups with their
//! leaders.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use anyhow::{Result, ensure};

use super::declared_cause;
use super::io::DevicesBelow;
use super::links::LinkBuilder;
use super::plan_notes::{self, by_pmu};
use super::pmu_cpus::{ReaderSpot, Sight, offline_readers, reader_spots};
use super::pmus::PmuIndex;
use super::resolve::{ResolvedEvent, Resolver};
use super::shared_terms::{RegisterTerms, cannot_lead};
use super::{Counter, CounterRole, Plan, PlanRequest, functions_behind, guests, io};
use crate::catalog::budget::find_overcommitted;
use crate::catalog::encode::parse_raw;
use crate::catalog::exact::ExactBy;
use crate::catalog::family::PmuKind;
use crate::catalog::source::TrafficCause;
use crate::choice::DeclaredCause;
use crate::discover::format::WORDS;
use crate::discover::{CpuList, Machine};
use crate::text::printable;

/// Identity of a counter: attribute type, config words and CPU.
type EventIdentity = (u32, [u64; WORDS], u32);

/// Collects the counters of a plan.
#[derive(Debug)]
pub(super) struct Assembly<'a> {
    pub(super) machine: &'a Machine,
    pub(super) pmus: Rc<PmuIndex<'a>>,
    pub(super) seen: HashMap<EventIdentity, u32>,
    pub(super) agreement: RegisterTerms,
    /// What the user says of counters whose causes nothing else says.
    declared_cause: Option<DeclaredCause>,
    /// The leaders of the groups that the user typed.
    pub(super) typed: HashSet<u32>,
    /// The names that the user gave to counters.
    labels: BTreeMap<u32, String>,
    /// The events, once for all CPUs on which they are read.
    pub(super) events: Vec<ResolvedEvent<'a>>,
    /// The indices of those of each PMU.
    pub(super) events_of: HashMap<&'a str, Vec<usize>>,
    /// The counters that each leader leads.
    pub(super) siblings: HashMap<u32, Vec<u32>>,
    /// The links of the counters.
    pub(super) links: LinkBuilder,
    /// The last counter of each PMU, event and CPU that is no part of another one.
    wholes: HashMap<(String, String, u32), u32>,
    pub(super) plan: Plan,
}

/// The open group on a CPU.
struct OpenGroup<'e, 'a> {
    cpu: u32,
    leader: u32,
    /// Its leader.
    leader_event: &'e ResolvedEvent<'a>,
    /// The PMU of its members; `None` while all are software events.
    pmu: Option<&'e str>,
}

impl<'a> Assembly<'a> {
    /// An empty plan for a machine with these PMUs.
    pub(super) fn new(pmus: &Rc<PmuIndex<'a>>, request: &PlanRequest) -> Self {
        let PlanRequest { tick_ns, window_ns, declared_cause: declared, .. } = *request;
        Self {
            machine: pmus.machine,
            pmus: Rc::clone(pmus),
            declared_cause: declared,
            seen: HashMap::new(),
            agreement: RegisterTerms::default(),
            typed: HashSet::new(),
            labels: BTreeMap::new(),
            events: Vec::new(),
            events_of: HashMap::new(),
            siblings: HashMap::new(),
            links: LinkBuilder::default(),
            wholes: HashMap::new(),
            plan: Plan { tick_ns, window_ns, ..Plan::default() },
        }
    }

    /// Adds counters outside groups. A PMU without a CPU to read it is an error if it is the only
    /// one, and a note otherwise.
    pub(super) fn add_events(&mut self, events: &[ResolvedEvent<'a>]) -> Result<()> {
        for (event, spot) in self.place_events(events, None)? {
            self.push(event, spot, None);
        }
        Ok(())
    }

    /// Adds the members of a brace group.
    ///
    /// As in perf since 7.2, members on different PMUs or CPUs form separate groups. The first
    /// member on a CPU is the leader. Software events can join and lead the group of another PMU.
    pub(super) fn add_group(
        &mut self,
        text: &str,
        weak: bool,
        events: &[ResolvedEvent<'a>],
    ) -> Result<()> {
        let refused = too_large(text, weak, events)?;
        let placed = self.place_events(events, events.first())?;
        let mut open: Vec<OpenGroup<'_, 'a>> = Vec::new();
        let mut pmus = HashSet::new();
        let mut alone = HashSet::new();
        for (event, spot) in placed {
            let software = event.words.is_kind(PmuKind::Software);
            let pmu = (!software).then_some(event.words.pmu_name());
            pmus.extend(pmu);
            let grouped = event.words.family.is_none_or(|family| family.groupable);
            if !grouped || refused.contains(event.words.pmu_name()) {
                alone.insert(event.words.pmu_name());
                self.push(event, spot, None);
                continue;
            }
            let cpu = spot.cpu;
            let mine = |group: &&mut OpenGroup<'_, 'a>| {
                group.cpu == cpu && (pmu.is_none() || group.pmu.is_none() || group.pmu == pmu)
            };
            // A group of the same PMU takes precedence over one with only software events.
            open.sort_by_key(|group| group.pmu != pmu);
            let group = open.iter_mut().find(mine);
            let misled = group.as_ref().and_then(|group| cannot_lead(group.leader_event, event));
            if let Some(why) = misled {
                ensure!(weak, "{}: {why}", printable(text));
                alone.insert(event.words.pmu_name());
                self.push(event, spot, None);
                continue;
            }
            let leader = group.as_ref().map(|group| group.leader);
            let (id, true) = self.push(event, spot, leader) else { continue };
            if let Some(group) = group {
                group.pmu = group.pmu.or(pmu);
            } else {
                self.typed.insert(id);
                open.push(OpenGroup { cpu, leader: id, leader_event: event, pmu });
            }
        }
        if pmus.len() > 1 && alone.is_empty() {
            self.add_note(format!(
                "{text}: a group cannot span PMUs, so each PMU has a group of its own"
            ));
        }
        if !alone.is_empty() {
            let weak = if weak { "" } else { ", not as a set" };
            self.add_note(format!(
                "{text}: this PMU cannot count in groups, so events are opened one by one{weak}"
            ));
        }
        Ok(())
    }

    /// Each event with each of its reader CPUs; `leader` is the first member of a brace group.
    fn place_events<'e>(
        &mut self,
        events: &'e [ResolvedEvent<'a>],
        leader: Option<&ResolvedEvent<'a>>,
    ) -> Result<Vec<(&'e ResolvedEvent<'a>, ReaderSpot)>> {
        let mut placed = Vec::new();
        let mut unreadable = Vec::new();
        for event in events {
            self.agreement.add_event(event, leader)?;
            let spots = reader_spots(self.machine, event.words, &event.encoded.event, event.die);
            match spots.and_then(|spots| chosen_spots(event, spots)) {
                Ok(spots) => {
                    self.add_event(event.clone());
                    placed.extend(spots.into_iter().map(|spot| (event, spot)));
                }
                Err(error) => unreadable.push(error),
            }
        }
        self.warn_of_unreadable(unreadable, placed.is_empty())?;
        for event in events {
            if let Some(why) = offline_readers(self.machine, event.words, &event.encoded.event) {
                self.add_warning(why);
            }
        }
        Ok(placed)
    }

    /// Adds a warning of each PMU that cannot be read. The first of them is an error if nothing
    /// else is counted.
    pub(super) fn warn_of_unreadable(
        &mut self,
        mut unreadable: Vec<anyhow::Error>,
        is_nothing_else: bool,
    ) -> Result<()> {
        if is_nothing_else && !unreadable.is_empty() {
            return Err(unreadable.swap_remove(0));
        }
        for error in unreadable {
            self.add_warning(format!("{error:#}"));
        }
        Ok(())
    }

    /// Adds a counter unless it exists. Returns its id and whether it is new.
    pub(super) fn push(
        &mut self,
        event: &ResolvedEvent<'a>,
        spot: ReaderSpot,
        leader: Option<u32>,
    ) -> (u32, bool) {
        let ReaderSpot { cpu, socket } = spot;
        let encoded = &event.encoded;
        let id = self.plan.counters.len() as u32;
        let existing = *self.seen.entry((encoded.attr_type, encoded.config, cpu)).or_insert(id);
        let key = (event.words.pmu.name.clone(), encoded.event.clone(), cpu);
        let part_of = if event.functions.is_empty() {
            self.wholes.insert(key, existing);
            None
        } else {
            self.wholes.get(&key).copied()
        };
        let label = encoded.asides.label.as_ref();
        if existing != id {
            self.name_existing(existing, label);
            return (existing, false);
        }
        let family = event.words.family;
        let causes = event
            .possible_causes()
            .or_else(|| self.declared_cause.map(|declared| [TrafficCause::from(declared)].into()));
        let per_cpu = event.words.is_per_cpu();
        let exact_by = family.and_then(|known_family| known_family.exact_by(&encoded.event));
        let exact_by = exact_by.filter(|method| per_cpu || *method == ExactBy::Requests);
        let sight =
            |causes| Sight::for_counter(&self.pmus, event.words, &encoded.event, cpu, causes);
        // Without known causes none of the count is divided.
        let Sight { sees, far } = causes.as_ref().map(sight).unwrap_or_default();
        let causes = causes.unwrap_or_default();
        let below = DevicesBelow::for_counter(self.machine, event.words, encoded, cpu);
        let has_devices = causes.contains(&TrafficCause::Device);
        self.labels.extend(label.map(|label| (id, label.clone())));
        self.plan.counters.push(Counter {
            id,
            pmu: event.words.pmu.name.clone(),
            family: event.words.family_name().to_owned(),
            subsystem: event.group.to_owned(),
            event: encoded.event.clone(),
            filter: encoded.filter.clone(),
            unit: encoded.unit.clone(),
            scale: encoded.scale,
            attr_type: encoded.attr_type,
            config: encoded.config,
            cpu,
            socket,
            sees,
            far,
            per_cpu,
            exclude_guest: guests::excludes_guests(self.machine, event.words),
            at_switch: exact_by == Some(ExactBy::Readings),
            exact_by: exact_by.filter(|method| *method != ExactBy::Readings),
            cause: causes.first().copied().filter(|_| causes.len() == 1),
            causes: if causes.len() > 1 { causes } else { BTreeSet::new() },
            io: io::io_scope(self.machine, event.words, encoded, below.as_ref()),
            behind: if has_devices {
                functions_behind::counted_functions(self.machine, event, cpu, below.as_ref())
            } else {
                Vec::new()
            },
            functions: event.functions.clone(),
            part_of,
            exclusive: false,
            leader,
            role: CounterRole::Counted,
            witness_bytes: None,
        });
        if let Some(leader) = leader {
            self.siblings.entry(leader).or_default().push(id);
        }
        self.links.add_counter(self.machine, event, spot, id, below);
        (id, true)
    }

    /// Adds an event whose counters are planned.
    pub(super) fn add_event(&mut self, event: ResolvedEvent<'a>) {
        self.events_of.entry(&event.words.pmu.name).or_default().push(self.events.len());
        self.events.push(event);
    }

    /// Makes one group of all these counters and of all that they lead.
    pub(super) fn set_leader(&mut self, siblings: &[u32], leader: u32) {
        for sibling in siblings {
            self.siblings.remove(sibling);
            self.plan.counters[*sibling as usize].leader = Some(leader);
        }
        if !siblings.is_empty() {
            self.siblings.insert(leader, siblings.to_vec());
        }
    }

    /// Adds a note, unless it exists.
    pub(super) fn add_note(&mut self, note: String) {
        if !self.plan.notes.contains(&note) {
            self.plan.notes.push(note);
        }
    }

    /// Adds the notes that do not exist.
    pub(super) fn add_notes(&mut self, notes: impl IntoIterator<Item = String>) {
        notes.into_iter().for_each(|note| self.add_note(note));
    }

    /// The plan, with notes on multiplexing and on traffic that is counted twice.
    ///
    /// # Errors
    ///
    /// Some of the events would never run, or `--cause` is for none of them.
    pub(super) fn finish_plan(
        mut self,
        resolver: &Resolver<'_>,
        request: &PlanRequest,
    ) -> Result<Plan> {
        let events = std::mem::take(&mut self.events);
        self.plan.warnings.extend(declared_cause::unused_cause_warning(&events, request)?);
        self.add_notes(declared_cause::unknown_cause_note(&events, self.declared_cause));
        self.add_notes(plan_notes::collect_notes(self.machine, &events)?);
        self.take_turns(&events);
        self.add_notes(guests::guests_note(self.machine, &self.plan.counters));
        self.add_notes(io::io_notes(&self.plan.counters));
        self.plan.links = std::mem::take(&mut self.links).finish_links(resolver, &self.plan);
        self.apply_labels()?;
        Ok(self.plan)
    }

    /// Gives a name to a counter that is there. The name of a raw event (`rNNN`) changes none, and
    /// a counter keeps its first name.
    fn name_existing(&mut self, id: u32, label: Option<&String>) {
        let Some(label) = label.filter(|label| parse_raw(label).is_none()) else { return };
        let existing_name = self.labels.entry(id).or_insert_with(|| label.clone()).clone();
        if existing_name != *label {
            let (label, shown_name) = (printable(label), printable(&existing_name));
            self.add_note(format!("name={label}: the event is counted already, as {shown_name}"));
        }
    }

    /// Names counters as the user wants. Rules of the catalog are of the events' own names, so that
    /// this comes last.
    ///
    /// # Errors
    ///
    /// Two events of a family would have one name, and be summed up as one event.
    fn apply_labels(&mut self) -> Result<()> {
        let mut meant: HashMap<_, (&str, bool)> = HashMap::new();
        for counter in &self.plan.counters {
            let label = self.labels.get(&counter.id);
            let name = label.unwrap_or(&counter.event);
            let key = (counter.family.as_str(), name, counter.filter.as_str());
            let is_labelled = label.is_some();
            let (event, was_labelled) = *meant.entry(key).or_insert((&counter.event, is_labelled));
            ensure!(
                event == counter.event || !(is_labelled || was_labelled),
                "name={0}: {1} and {2} would both be called {0}: give each its own name",
                printable(name),
                printable(event),
                printable(&counter.event)
            );
        }
        for (id, label) in std::mem::take(&mut self.labels) {
            if let Some(counter) = self.plan.counters.get_mut(id as usize) {
                counter.event = label;
            }
        }
        Ok(())
    }
}

/// The reader CPUs of an event that `cpu=` leaves.
fn chosen_spots(event: &ResolvedEvent<'_>, mut spots: Vec<ReaderSpot>) -> Result<Vec<ReaderSpot>> {
    let Some(cpus) = &event.encoded.asides.cpus else { return Ok(spots) };
    let all_cpus: CpuList = spots.iter().map(|spot| spot.cpu).collect();
    spots.retain(|spot| cpus.contains(spot.cpu));
    ensure!(
        !spots.is_empty(),
        "cpu={cpus}: {} is read on CPU {all_cpus}: name one of these",
        printable(&event.words.pmu.name)
    );
    Ok(spots)
}

/// The PMUs that cannot count their members of a group together. An error unless the group is weak.
fn too_large<'e>(
    text: &str,
    weak: bool,
    events: &'e [ResolvedEvent<'_>],
) -> Result<HashSet<&'e str>> {
    let mut refused = HashSet::new();
    for (words, members) in by_pmu(events) {
        if words.family.is_some_and(|family| !family.groupable) {
            continue;
        }
        let pmu = words.pmu_name();
        let limits = find_overcommitted(words, &members);
        let Some(limit) = limits.iter().find(|candidate| !candidate.unsure) else { continue };
        ensure!(weak, "{}: {}", printable(text), limit.group_refusal(pmu));
        refused.insert(pmu);
    }
    Ok(refused)
}

impl Plan {
    /// Marks all per-CPU counters to be read at every context switch, but those whose counts are
    /// known exactly without.
    pub fn read_at_switch(&mut self) {
        for counter in &mut self.counters {
            counter.at_switch |= counter.per_cpu && counter.exact_by.is_none();
        }
    }

    /// The reader CPUs, which need a timer.
    pub fn reader_cpus(&self) -> CpuList {
        let events = self.counters.iter().filter(|counter| !counter.is_statistic());
        events.map(|counter| counter.cpu).collect()
    }
}
