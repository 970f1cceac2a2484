//! Columns: the owners and groups of owners whose rates are learnt.
//!
//! A column is a cgroup, or a process of a cgroup that has others beside it, on near or on far
//! CPUs. An owner without a cgroup, such as an interrupt, is a group of its own. The processes of a
//! cgroup without a column share that of their cgroup, and so does its largest: its rate is that of
//! the cgroup, and those of the other processes are expected around it. Groups with little use
//! share [`SHARED_NEAR`] and [`SHARED_FAR`]. A slot is freed when its column has hardly any use
//! left, and used again when no stored tick refers to it.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;

use foldhash::{HashMap, HashMapExt, HashSet};

use super::traffic_source::{DeviceTraffic, SourceUse, TrafficSource};
use crate::entries::Owner;

/// The slot of constant traffic: devices, refresh, systems that are not seen.
pub(super) const BASELINE: u16 = 0;

/// The slot shared by all other sources on near CPUs.
pub(super) const SHARED_NEAR: u16 = 1;

/// The slot shared by all other sources on far CPUs.
pub(super) const SHARED_FAR: u16 = 2;

/// Whether a slot is shared by several groups.
pub(super) const fn is_shared_slot(slot: u16) -> bool {
    slot == SHARED_NEAR || slot == SHARED_FAR
}

/// Largest number of columns of owners.
pub(super) const MAX_COLUMNS: usize = 512;

/// Largest number of columns of devices. They stay until the recording ends, and each costs as much
/// work as that of an owner.
const MAX_DEVICE_COLUMNS: usize = 64;

/// A group gets a column at this fraction of the total use.
pub(super) const MIN_GROUP_FRACTION: f64 = 2e-4;

/// A process gets a column at this fraction of the total use.
pub(super) const MIN_PROCESS_FRACTION: f64 = 1e-3;

/// A column is dropped below this fraction of the use at which it would be made.
pub(super) const DROP_FRACTION: f64 = 0.025;

/// Owners that are expected to have similar rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum ColumnGroup {
    Cgroup(u64),
    Alone(Owner),
}

impl ColumnGroup {
    const fn from_owner(owner: Owner) -> Self {
        match owner {
            Owner::Task { cgroup_id, .. } => Self::Cgroup(cgroup_id),
            _ => Self::Alone(owner),
        }
    }
}

/// What a column stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum ColumnSubject {
    Baseline,
    Rest,
    Group(ColumnGroup),
    Process(Owner),
    Device(DeviceTraffic),
}

/// The kind of a column, which decides the prior of its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnKind {
    /// Traffic that is always there.
    Baseline,
    /// A group on near CPUs.
    Group,
    /// A process; the parent is its group.
    Process,
    /// An owner on far CPUs; the parent is the same on near CPUs. Also a device whose bytes are
    /// expected in another memory.
    Far,
    /// What a device moves in one direction. All owners of its bytes have the same rate.
    Device,
}

/// A column of the design matrix, which has a rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct RateColumn {
    /// What it stands for.
    pub subject: ColumnSubject,
    is_far: bool,
    /// Its kind.
    pub kind: ColumnKind,
    /// The slot of the column around whose rate its own is expected.
    pub parent: Option<u16>,
    /// A number that no other column has, also none of the same slot.
    pub number: u64,
}

impl RateColumn {
    /// The device whose bytes it has, if CPUs do not move them.
    pub(super) const fn device(&self) -> Option<DeviceTraffic> {
        match self.subject {
            ColumnSubject::Device(traffic) => Some(traffic),
            _ => None,
        }
    }

    /// The cgroup that it is of, or whose process it is of.
    pub(super) const fn cgroup(&self) -> Option<u64> {
        match self.subject {
            ColumnSubject::Group(ColumnGroup::Cgroup(cgroup_id))
            | ColumnSubject::Process(Owner::Task { cgroup_id, .. }) => Some(cgroup_id),
            _ => None,
        }
    }

    /// Whether it is of far CPUs, or of a device whose bytes are expected in another memory.
    pub(super) const fn is_far(&self) -> bool {
        self.is_far
    }
}

/// All columns of a set of CPUs.
#[derive(Debug)]
pub(super) struct RateColumns {
    by_slot: Vec<Option<RateColumn>>,
    slots: HashMap<(ColumnSubject, bool), u16>,
    /// Free slots, and the last tick that may refer to each.
    free_slots: VecDeque<(u64, u16)>,
    /// The process of each group that shares the group's column.
    largest: HashMap<ColumnGroup, Owner>,
    /// Number of columns of devices.
    device_count: usize,
    next_number: u64,
}

impl RateColumns {
    /// The columns that always exist.
    pub(super) fn new() -> Self {
        let mut columns = Self {
            by_slot: Vec::new(),
            slots: HashMap::new(),
            free_slots: VecDeque::new(),
            largest: HashMap::new(),
            device_count: 0,
            next_number: 0,
        };
        for (subject, is_far) in [
            (ColumnSubject::Baseline, false),
            (ColumnSubject::Rest, false),
            (ColumnSubject::Rest, true),
        ] {
            columns.add_column(subject, is_far, 0);
        }
        columns.find_parents();
        columns
    }

    /// Number of slots, free ones included.
    pub(super) fn len(&self) -> usize {
        self.by_slot.len()
    }

    /// The column of a slot, if it has one.
    pub(super) fn get(&self, slot: usize) -> Option<&RateColumn> {
        self.by_slot.get(slot).and_then(Option::as_ref)
    }

    /// Whether any column has bytes of devices.
    pub(super) const fn has_devices(&self) -> bool {
        self.device_count > 0
    }

    /// Whether the column of a slot has bytes of a device.
    pub(super) fn is_device_slot(&self, slot: usize) -> bool {
        self.has_devices() && self.get(slot).is_some_and(|column| column.device().is_some())
    }

    /// The slot where the use of a new column was before: the nearest parent on the same CPUs with
    /// this property, or that of all others.
    pub(super) fn previous_slot(
        &self,
        slot: usize,
        is_suitable: impl Fn(u16) -> bool,
    ) -> Option<u16> {
        let column = self.get(slot)?;
        let shared_slot = if column.is_far { SHARED_FAR } else { SHARED_NEAR };
        let mut ancestor = column.parent;
        while let Some(parent) = ancestor {
            let parent_column = self.get(usize::from(parent))?;
            if parent_column.is_far == column.is_far && is_suitable(parent) {
                return Some(parent);
            }
            ancestor = parent_column.parent;
        }
        Some(shared_slot)
    }

    /// The slot of the group that a slot belongs to.
    pub(super) fn group_slot(&self, slot: usize) -> usize {
        let mut root = slot;
        while let Some(parent) = self.get(root).and_then(|column| column.parent) {
            root = usize::from(parent);
        }
        root
    }

    /// The slot of what a device moves, which gets a column if it has none. Where there are
    /// [`MAX_DEVICE_COLUMNS`], it shares that of another device, if possible of the same direction
    /// and distance.
    pub(super) fn require_device_slot(&mut self, traffic: DeviceTraffic, is_far: bool) -> u16 {
        let subject = ColumnSubject::Device(traffic);
        if let Some(slot) = self.slots.get(&(subject, is_far)) {
            return *slot;
        }
        if self.device_count >= MAX_DEVICE_COLUMNS
            && let Some(shared_slot) = self.similar_device_slot(traffic, is_far)
        {
            self.slots.insert((subject, is_far), shared_slot);
            return shared_slot;
        }
        self.device_count += 1;
        // Ticks may refer to it before the next review, so it gets a slot that none refers to.
        let new_slot = self.append_column(subject, is_far);
        self.find_parents();
        new_slot
    }

    /// The slot of the device whose column is most like that of another one.
    fn similar_device_slot(&self, traffic: DeviceTraffic, is_far: bool) -> Option<u16> {
        let devices = (0u16..).zip(&self.by_slot).filter_map(|(slot, column)| {
            let column = column.as_ref()?;
            let has_direction = column.device()?.direction == traffic.direction;
            Some((has_direction, column.is_far == is_far, slot))
        });
        devices.max().map(|(_, _, slot)| slot)
    }

    /// The slot of a source. What a device moves has one once it was required.
    pub(super) fn slot_of_source(&self, source: TrafficSource) -> u16 {
        let TrafficSource { owner, is_far, device } = source;
        if let Some(traffic) = device {
            let slot = self.slots.get(&(ColumnSubject::Device(traffic), is_far));
            return slot.copied().unwrap_or(BASELINE);
        }
        let process_slot = self.slots.get(&(ColumnSubject::Process(owner), is_far));
        let slot = process_slot.or_else(|| {
            self.slots.get(&(ColumnSubject::Group(ColumnGroup::from_owner(owner)), is_far))
        });
        slot.copied().unwrap_or(if is_far { SHARED_FAR } else { SHARED_NEAR })
    }

    /// Gives columns to those with the largest use. `use_by_source` is sorted, and `smallest` is the
    /// smallest use for a column. Returns the slots that have a new column.
    pub(super) fn assign_columns(
        &mut self,
        use_by_source: &[SourceUse],
        smallest: f64,
        stored_ticks: RangeInclusive<u64>,
    ) -> Vec<u16> {
        let mut owners: BTreeMap<Owner, [f64; 2]> = BTreeMap::new();
        let mut groups: BTreeMap<ColumnGroup, [f64; 2]> = BTreeMap::new();
        let mut total_use = 0.0;
        for SourceUse { source, amount, beside_busy: _ } in use_by_source {
            let far_index = usize::from(source.is_far);
            owners.entry(source.owner).or_default()[far_index] += amount;
            groups.entry(ColumnGroup::from_owner(source.owner)).or_default()[far_index] += amount;
            total_use += amount;
        }
        self.find_largest(&owners);
        let (group_threshold, process_threshold) = (
            (MIN_GROUP_FRACTION * total_use).max(smallest),
            (MIN_PROCESS_FRACTION * total_use).max(smallest),
        );
        let mut wanted: Vec<(f64, (ColumnSubject, bool))> = Vec::new();
        let mut offer = |subject: ColumnSubject, amounts: [f64; 2], sum: f64, threshold: f64| {
            for (amount, is_far) in amounts.into_iter().zip([false, true]) {
                let has_column = self.slots.contains_key(&(subject, is_far));
                let (min_sum, bonus) =
                    if has_column { (DROP_FRACTION * threshold, 2.0) } else { (threshold, 1.0) };
                if sum >= min_sum && amount > DROP_FRACTION * min_sum {
                    wanted.push((bonus * amount, (subject, is_far)));
                }
            }
        };
        for (group, amounts_of_group) in &groups {
            offer(
                ColumnSubject::Group(*group),
                *amounts_of_group,
                amounts_of_group[0] + amounts_of_group[1],
                group_threshold,
            );
        }
        for (owner, amounts_of_owner) in &owners {
            let group = ColumnGroup::from_owner(*owner);
            if matches!(group, ColumnGroup::Cgroup(_)) && self.largest.get(&group) != Some(owner) {
                offer(
                    ColumnSubject::Process(*owner),
                    *amounts_of_owner,
                    amounts_of_owner[0] + amounts_of_owner[1],
                    process_threshold,
                );
            }
        }
        wanted.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        wanted.truncate(MAX_COLUMNS);
        let kept_keys: HashSet<(ColumnSubject, bool)> =
            wanted.iter().map(|(_, key)| *key).collect();
        for slot in 0..self.by_slot.len() {
            let Some(column) = self.by_slot[slot] else { continue };
            let key = (column.subject, column.is_far);
            if !kept_keys.contains(&key)
                && matches!(column.subject, ColumnSubject::Group(_) | ColumnSubject::Process(_))
            {
                self.slots.remove(&key);
                self.by_slot[slot] = None;
                self.free_slots.push_back((*stored_ticks.end(), slot as u16));
            }
        }
        let mut new_slots = Vec::new();
        for (_, (subject, is_far)) in wanted {
            if !self.slots.contains_key(&(subject, is_far)) {
                new_slots.push(self.add_column(subject, is_far, *stored_ticks.start()));
            }
        }
        self.find_parents();
        new_slots
    }

    /// Gives a new column a slot.
    fn add_column(
        &mut self,
        column_subject: ColumnSubject,
        is_far: bool,
        first_stored_tick: u64,
    ) -> u16 {
        let Some((_, slot)) =
            self.free_slots.pop_front_if(|(last_reference, _)| *last_reference < first_stored_tick)
        else {
            return self.append_column(column_subject, is_far);
        };
        self.by_slot[usize::from(slot)] = Some(self.make_column(column_subject, is_far));
        self.slots.insert((column_subject, is_far), slot);
        slot
    }

    /// Gives a new column a new slot.
    fn append_column(&mut self, column_subject: ColumnSubject, is_far: bool) -> u16 {
        let column = self.make_column(column_subject, is_far);
        self.by_slot.push(Some(column));
        let new_slot = (self.by_slot.len() - 1) as u16;
        self.slots.insert((column_subject, is_far), new_slot);
        new_slot
    }

    const fn make_column(&mut self, subject: ColumnSubject, is_far: bool) -> RateColumn {
        let kind = match (subject, is_far) {
            (ColumnSubject::Baseline, _) => ColumnKind::Baseline,
            (_, true) => ColumnKind::Far,
            (ColumnSubject::Process(_), false) => ColumnKind::Process,
            (ColumnSubject::Rest | ColumnSubject::Group(_), false) => ColumnKind::Group,
            (ColumnSubject::Device(_), false) => ColumnKind::Device,
        };
        let number = self.next_number;
        self.next_number += 1;
        RateColumn { subject, is_far, kind, parent: None, number }
    }

    /// The largest process of each group. It stays the same as long as it is known: if another one
    /// took its place, what is known of both would be lost.
    fn find_largest(&mut self, owners: &BTreeMap<Owner, [f64; 2]>) {
        let total_of = |owner: &Owner| owners.get(owner).map_or(0.0, |used| used[0] + used[1]);
        let mut largest_by_group: BTreeMap<ColumnGroup, (f64, Owner)> = BTreeMap::new();
        for owner in owners.keys() {
            let (group, total) = (ColumnGroup::from_owner(*owner), total_of(owner));
            let largest = largest_by_group.entry(group).or_insert((total, *owner));
            if total > largest.0 {
                *largest = (total, *owner);
            }
        }
        let previous = std::mem::take(&mut self.largest);
        self.largest = largest_by_group
            .into_iter()
            .map(|(group, (_, owner))| {
                let kept = previous.get(&group).filter(|process| owners.contains_key(process));
                (group, kept.copied().unwrap_or(owner))
            })
            .collect();
    }

    fn find_parents(&mut self) {
        let slot_of_key =
            |subject: ColumnSubject, is_far: bool| self.slots.get(&(subject, is_far)).copied();
        let parents: Vec<Option<u16>> = self
            .by_slot
            .iter()
            .map(|column| match column.as_ref()? {
                RateColumn { subject: ColumnSubject::Process(owner), is_far, .. } => {
                    let group = ColumnSubject::Group(ColumnGroup::from_owner(*owner));
                    let near = is_far
                        .then(|| slot_of_key(ColumnSubject::Process(*owner), false))
                        .flatten();
                    near.or_else(|| slot_of_key(group, *is_far))
                }
                RateColumn { subject, is_far: true, .. } => slot_of_key(*subject, false),
                RateColumn { .. } => None,
            })
            .collect();
        let is_far = |parent: Option<u16>| {
            parent
                .and_then(|parent_slot| self.get(usize::from(parent_slot)))
                .is_some_and(|column| column.is_far)
        };
        let far: Vec<bool> = parents.iter().map(|parent| is_far(*parent)).collect();
        for ((column, parent), parent_is_far) in self.by_slot.iter_mut().zip(parents).zip(far) {
            let Some(column) = column else { continue };
            column.parent = parent;
            if column.is_far {
                // Around a far parent it is expected as a process is around its group.
                column.kind = if parent_is_far { ColumnKind::Process } else { ColumnKind::Far };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::Comm;
    use crate::plan::IoDirection;

    const fn near(owner: Owner) -> TrafficSource {
        TrafficSource::from_cpus(owner, false)
    }

    fn irqs(count: u32, used: impl Fn(u32) -> f64) -> Vec<SourceUse> {
        (0..count).map(|number| SourceUse::new(near(Owner::Irq(number)), used(number))).collect()
    }

    #[test]
    fn who_uses_most_has_a_column_and_keeps_it() {
        let mut columns = RateColumns::new();
        let many = MAX_COLUMNS as u32 + 100;
        columns.assign_columns(&irqs(many, |number| 1e3 + f64::from(number)), 2.0, 1..=100);
        let column_owners = |columns: &RateColumns| -> Vec<u32> {
            (0..=many)
                .filter(|irq| columns.slot_of_source(near(Owner::Irq(*irq))) > SHARED_FAR)
                .collect()
        };
        let first = column_owners(&columns);
        assert_eq!(first, (100..many).collect::<Vec<_>>());
        // A slightly larger use does not justify learning anew; a much larger one does.
        columns.assign_columns(&irqs(many, |number| 1e3 + f64::from(many - number)), 2.0, 1..=200);
        assert_eq!(column_owners(&columns), first);
        let mut used = irqs(many, |number| 1e3 + f64::from(many - number));
        used.push(SourceUse::new(near(Owner::Irq(many)), 1e4));
        let new = columns.assign_columns(&used, 2.0, 1..=300);
        assert!(column_owners(&columns).contains(&many));
        assert_eq!((new.len(), column_owners(&columns).len()), (1, MAX_COLUMNS));
        // Its slot is used again when no tick refers to it.
        let slot_count = columns.len();
        columns.assign_columns(&[SourceUse::new(near(Owner::Irq(7)), 1e4)], 2.0, 301..=400);
        assert!(
            columns
                .assign_columns(&irqs(5, |_| 1e4), 2.0, 301..=500)
                .iter()
                .all(|slot| usize::from(*slot) >= slot_count - 1)
        );
        columns.assign_columns(&irqs(9, |_| 1e4), 2.0, 501..=600);
        assert!(columns.len() <= slot_count + 5);
    }

    #[test]
    fn processes_are_expected_around_their_cgroup_and_far_ones_around_near_ones() {
        let task = |pid, cgroup_id| Owner::Task { pid, comm: Comm::default(), cgroup_id };
        let far = |owner| TrafficSource::from_cpus(owner, true);
        let mut columns = RateColumns::new();
        let used = [
            (near(task(1, 10)), 50.0),
            (far(task(1, 10)), 5.0),
            (near(task(2, 10)), 20.0),
            (far(task(2, 10)), 5.0),
            (near(task(3, 10)), 0.01),
            (near(task(4, 20)), 30.0),
        ]
        .map(|(source, amount)| SourceUse::new(source, amount));
        columns.assign_columns(&used, 2.0, 1..=100);
        let slot_of = |source| columns.slot_of_source(source);
        let parent = |source| columns.get(usize::from(slot_of(source))).unwrap().parent;
        // The largest process, and small ones, share the column of the cgroup.
        assert_eq!(slot_of(near(task(1, 10))), slot_of(near(task(3, 10))));
        assert_ne!(slot_of(near(task(1, 10))), slot_of(near(task(2, 10))));
        assert_eq!(parent(near(task(2, 10))), Some(slot_of(near(task(1, 10)))));
        assert_eq!(parent(far(task(2, 10))), Some(slot_of(near(task(2, 10)))));
        assert_eq!(parent(far(task(1, 10))), Some(slot_of(near(task(1, 10)))));
        assert_eq!(parent(near(task(4, 20))), None);
        assert_eq!(slot_of(near(task(9, 30))), SHARED_NEAR);
        assert_eq!(slot_of(far(task(9, 30))), SHARED_FAR);
    }

    #[test]
    fn a_device_has_a_column_from_its_first_bytes_to_the_end() {
        let device = |number, is_far| TrafficSource {
            device: Some(DeviceTraffic { number, direction: IoDirection::Read }),
            ..TrafficSource::from_cpus(Owner::Device, is_far)
        };
        let require = |columns: &mut RateColumns, source: TrafficSource| {
            columns.require_device_slot(source.device.unwrap(), source.is_far)
        };
        let mut columns = RateColumns::new();
        columns.assign_columns(&irqs(3, |_| 1e3), 2.0, 1..=100);
        // A slot that is free is not used: ticks that were not reviewed may refer to it.
        columns.assign_columns(&irqs(1, |_| 1e3), 2.0, 200..=300);
        let slot_count = columns.len();
        let near_slot = require(&mut columns, device(0, false));
        assert_eq!(usize::from(near_slot), slot_count);
        let far_slot = require(&mut columns, device(0, true));
        columns.assign_columns(&irqs(600, |_| 1e3), 2.0, 400..=500);
        assert_eq!(columns.slot_of_source(device(0, false)), near_slot);
        assert_eq!(require(&mut columns, device(0, true)), far_slot);
        let far = columns.get(usize::from(far_slot)).unwrap();
        assert_eq!((far.kind, far.parent), (ColumnKind::Far, Some(near_slot)));
        assert!(columns.is_device_slot(usize::from(far_slot)));
        assert!(!columns.is_device_slot(usize::from(SHARED_NEAR)));
    }

    #[test]
    fn devices_beyond_the_most_columns_share_those_of_their_direction_and_distance() {
        let traffic = |number, direction| DeviceTraffic { number, direction };
        let mut columns = RateColumns::new();
        let near_reads = columns.require_device_slot(traffic(0, IoDirection::Read), false);
        let far_reads = columns.require_device_slot(traffic(0, IoDirection::Read), true);
        for number in 1..MAX_DEVICE_COLUMNS as u16 - 1 {
            columns.require_device_slot(traffic(number, IoDirection::Write), false);
        }
        let slot_count = columns.len();
        let mut require =
            |direction, is_far| columns.require_device_slot(traffic(500, direction), is_far);
        assert_eq!(require(IoDirection::Read, false), near_reads);
        assert_eq!(require(IoDirection::Read, true), far_reads);
        let near_writes = require(IoDirection::Write, false);
        assert_eq!(require(IoDirection::Write, true), near_writes);
        let source = TrafficSource {
            device: Some(traffic(500, IoDirection::Read)),
            ..TrafficSource::from_cpus(Owner::Device, true)
        };
        assert_eq!((columns.slot_of_source(source), columns.len()), (far_reads, slot_count));
    }
}
