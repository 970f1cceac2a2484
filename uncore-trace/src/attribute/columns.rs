//! Columns: the owners and groups of owners whose rates are learnt.
//!
//! A column is a cgroup, or a process of a cgroup that has others beside it, on near or on far
//! CPUs. An owner without a cgroup, such as an interrupt, is a group of its own. The processes of a
//! cgroup without a column share that of their cgroup, and so does its largest: its rate is that of
//! the cgroup, and those of the other processes are expected around it. Groups with little use share
//! [`REST`] and [`FAR_REST`]. A place is freed when its column has hardly any use left, and used
//! again when no stored tick refers to it.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use super::history::TrafficSource;
use crate::entries::Owner;

/// The place of constant traffic: devices, refresh, systems that are not seen.
pub(super) const BASELINE: u16 = 0;

/// The place shared by all other sources on near CPUs.
pub(super) const REST: u16 = 1;

/// The place shared by all other sources on far CPUs.
pub(super) const FAR_REST: u16 = 2;

/// Whether a place is shared by several groups.
pub(super) const fn is_rest(place: u16) -> bool {
    place == REST || place == FAR_REST
}

/// Largest number of columns.
const MOST: usize = 512;

/// A group gets a column at this part of the total use.
pub(super) const LEAST_GROUP: f64 = 2e-4;

/// A process gets a column at this part of the total use.
pub(super) const LEAST_PROCESS: f64 = 1e-3;

/// A column is dropped below this part of the use at which it would be made.
pub(super) const GONE_PART: f64 = 0.025;

/// Owners that are expected to have similar rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Group {
    Cgroup(u64),
    Alone(Owner),
}

impl Group {
    const fn of(owner: Owner) -> Self {
        match owner {
            Owner::Task { cgroup_id, .. } => Self::Cgroup(cgroup_id),
            _ => Self::Alone(owner),
        }
    }
}

/// What a column stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Who {
    Baseline,
    Rest,
    Group(Group),
    Process(Owner),
}

/// The kind of a column, which decides what is expected of its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Traffic that is always there.
    Baseline,
    /// A group on near CPUs.
    Group,
    /// A process; the parent is its group.
    Process,
    /// An owner on far CPUs; the parent is the same on near CPUs.
    Far,
}

/// A column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    who: Who,
    is_far: bool,
    /// Its kind.
    pub kind: Kind,
    /// The place of the column around whose rate its own is expected.
    pub parent: Option<u16>,
    /// A number of its own: a place that was free has another one.
    pub number: u64,
}

/// All columns of a set of CPUs.
#[derive(Debug)]
pub(super) struct Columns {
    of: Vec<Option<Column>>,
    places: HashMap<(Who, bool), u16>,
    /// Free places, and the last tick that may refer to each.
    free: VecDeque<(u64, u16)>,
    /// The process of each group that shares its column.
    largest: HashMap<Group, Owner>,
    next: u64,
}

impl Columns {
    /// Those that are always there.
    pub(super) fn new() -> Self {
        let mut columns = Self {
            of: Vec::new(),
            places: HashMap::new(),
            free: VecDeque::new(),
            largest: HashMap::new(),
            next: 0,
        };
        for (who, is_far) in [(Who::Baseline, false), (Who::Rest, false), (Who::Rest, true)] {
            columns.add(who, is_far, 0);
        }
        columns.find_parents();
        columns
    }

    /// Number of places, free ones included.
    pub(super) fn len(&self) -> usize {
        self.of.len()
    }

    /// The column of a place, if it has one.
    pub(super) fn get(&self, place: usize) -> Option<&Column> {
        self.of.get(place).and_then(Option::as_ref)
    }

    /// The place where the use of a new column was before: the nearest parent on the same CPUs with
    /// this property, or that of all others.
    pub(super) fn before(&self, place: usize, has: impl Fn(u16) -> bool) -> Option<u16> {
        let column = self.get(place)?;
        let rest = if column.is_far { FAR_REST } else { REST };
        let mut at = column.parent;
        while let Some(parent) = at {
            let its = self.get(usize::from(parent))?;
            if its.is_far == column.is_far && has(parent) {
                return Some(parent);
            }
            at = its.parent;
        }
        Some(rest)
    }

    /// The place of the group that a place belongs to.
    pub(super) fn root(&self, place: usize) -> usize {
        let mut root = place;
        while let Some(parent) = self.get(root).and_then(|column| column.parent) {
            root = usize::from(parent);
        }
        root
    }

    /// The place of a source.
    pub(super) fn place(&self, source: TrafficSource) -> u16 {
        let TrafficSource { owner, is_far } = source;
        let own = self.places.get(&(Who::Process(owner), is_far));
        let place = own.or_else(|| self.places.get(&(Who::Group(Group::of(owner)), is_far)));
        place.copied().unwrap_or(if is_far { FAR_REST } else { REST })
    }

    /// Gives columns to those with the largest use. `used` has the use of each source, sorted;
    /// `stored` are the first and the last stored tick, and `smallest` the smallest use for a column. Returns
    /// the places that have a new column.
    pub(super) fn review(
        &mut self,
        used: &[(TrafficSource, f64)],
        smallest: f64,
        stored: (u64, u64),
    ) -> Vec<u16> {
        let mut owners: BTreeMap<Owner, [f64; 2]> = BTreeMap::new();
        let mut groups: BTreeMap<Group, [f64; 2]> = BTreeMap::new();
        let mut all = 0.0;
        for (source, used) in used {
            let side = usize::from(source.is_far);
            owners.entry(source.owner).or_default()[side] += used;
            groups.entry(Group::of(source.owner)).or_default()[side] += used;
            all += used;
        }
        self.find_largest(&owners);
        let (of_group, of_process) =
            ((LEAST_GROUP * all).max(smallest), (LEAST_PROCESS * all).max(smallest));
        let mut wanted: Vec<(f64, (Who, bool))> = Vec::new();
        let mut offer = |who: Who, used: [f64; 2], sum: f64, least: f64| {
            for (used, is_far) in used.into_iter().zip([false, true]) {
                let is_there = self.places.contains_key(&(who, is_far));
                let (least, bonus) = if is_there { (GONE_PART * least, 2.0) } else { (least, 1.0) };
                if sum >= least && used > GONE_PART * least {
                    wanted.push((bonus * used, (who, is_far)));
                }
            }
        };
        for (group, used) in &groups {
            offer(Who::Group(*group), *used, used[0] + used[1], of_group);
        }
        for (owner, used) in &owners {
            let group = Group::of(*owner);
            if matches!(group, Group::Cgroup(_)) && self.largest.get(&group) != Some(owner) {
                offer(Who::Process(*owner), *used, used[0] + used[1], of_process);
            }
        }
        wanted.sort_unstable_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
        wanted.truncate(MOST);
        let keeps: HashSet<(Who, bool)> = wanted.iter().map(|(_, key)| *key).collect();
        for place in 0..self.of.len() {
            let Some(column) = self.of[place] else { continue };
            let key = (column.who, column.is_far);
            if !keeps.contains(&key) && !matches!(column.who, Who::Baseline | Who::Rest) {
                self.places.remove(&key);
                self.of[place] = None;
                self.free.push_back((stored.1, place as u16));
            }
        }
        let mut new = Vec::new();
        for (_, (who, is_far)) in wanted {
            if !self.places.contains_key(&(who, is_far)) {
                new.push(self.add(who, is_far, stored.0));
            }
        }
        self.find_parents();
        new
    }

    /// A place for a column.
    fn add(&mut self, who: Who, is_far: bool, first: u64) -> u16 {
        let kind = match (who, is_far) {
            (Who::Baseline, _) => Kind::Baseline,
            (_, true) => Kind::Far,
            (Who::Process(_), false) => Kind::Process,
            (Who::Rest | Who::Group(_), false) => Kind::Group,
        };
        let column = Some(Column { who, is_far, kind, parent: None, number: self.next });
        self.next += 1;
        let place = if let Some((_, place)) = self.free.pop_front_if(|(last, _)| *last < first) {
            self.of[usize::from(place)] = column;
            place
        } else {
            self.of.push(column);
            (self.of.len() - 1) as u16
        };
        self.places.insert((who, is_far), place);
        place
    }

    /// The largest process of each group. It stays the same as long as it is known: if another one
    /// took its place, what is known of both would be lost.
    fn find_largest(&mut self, owners: &BTreeMap<Owner, [f64; 2]>) {
        let sum = |owner: &Owner| owners.get(owner).map_or(0.0, |used| used[0] + used[1]);
        let mut most: BTreeMap<Group, (f64, Owner)> = BTreeMap::new();
        for owner in owners.keys() {
            let (group, used) = (Group::of(*owner), sum(owner));
            let most = most.entry(group).or_insert((used, *owner));
            if used > most.0 {
                *most = (used, *owner);
            }
        }
        let before = std::mem::take(&mut self.largest);
        self.largest = most
            .into_iter()
            .map(|(group, (_, owner))| {
                let stays = before.get(&group).filter(|its| owners.contains_key(its));
                (group, stays.copied().unwrap_or(owner))
            })
            .collect();
    }

    fn find_parents(&mut self) {
        let place = |who: Who, is_far: bool| self.places.get(&(who, is_far)).copied();
        let parents: Vec<Option<u16>> = self
            .of
            .iter()
            .map(|column| match column.as_ref()? {
                Column { who: Who::Process(owner), is_far, .. } => {
                    let group = Who::Group(Group::of(*owner));
                    let near = is_far.then(|| place(Who::Process(*owner), false)).flatten();
                    near.or_else(|| place(group, *is_far))
                }
                Column { who, is_far: true, .. } => place(*who, false),
                Column { .. } => None,
            })
            .collect();
        let is_far = |parent: Option<u16>| {
            parent.and_then(|at| self.get(usize::from(at))).is_some_and(|column| column.is_far)
        };
        let far: Vec<bool> = parents.iter().map(|parent| is_far(*parent)).collect();
        for ((column, parent), parent_is_far) in self.of.iter_mut().zip(parents).zip(far) {
            let Some(column) = column else { continue };
            column.parent = parent;
            if column.is_far {
                // Around a far parent it is expected as a process is around its group.
                column.kind = if parent_is_far { Kind::Process } else { Kind::Far };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::Comm;

    const fn near(owner: Owner) -> TrafficSource {
        TrafficSource { owner, is_far: false }
    }

    fn irqs(count: u32, used: impl Fn(u32) -> f64) -> Vec<(TrafficSource, f64)> {
        (0..count).map(|number| (near(Owner::Irq(number)), used(number))).collect()
    }

    #[test]
    fn who_uses_most_has_a_column_and_keeps_it() {
        let mut columns = Columns::new();
        let many = MOST as u32 + 100;
        columns.review(&irqs(many, |number| 1e3 + f64::from(number)), 2.0, (1, 100));
        let own = |columns: &Columns| -> Vec<u32> {
            (0..=many).filter(|it| columns.place(near(Owner::Irq(*it))) > FAR_REST).collect()
        };
        let first = own(&columns);
        assert_eq!(first, (100..many).collect::<Vec<_>>());
        // A slightly larger use does not justify learning anew; a much larger one does.
        columns.review(&irqs(many, |number| 1e3 + f64::from(many - number)), 2.0, (1, 200));
        assert_eq!(own(&columns), first);
        let mut used = irqs(many, |number| 1e3 + f64::from(many - number));
        used.push((near(Owner::Irq(many)), 1e4));
        let new = columns.review(&used, 2.0, (1, 300));
        assert!(own(&columns).contains(&many));
        assert_eq!((new.len(), own(&columns).len()), (1, MOST));
        // Its place is used again when no tick refers to it.
        let places = columns.len();
        columns.review(&[(near(Owner::Irq(7)), 1e4)], 2.0, (301, 400));
        assert!(
            columns
                .review(&irqs(5, |_| 1e4), 2.0, (301, 500))
                .iter()
                .all(|at| usize::from(*at) >= places - 1)
        );
        columns.review(&irqs(9, |_| 1e4), 2.0, (501, 600));
        assert!(columns.len() <= places + 5);
    }

    #[test]
    fn processes_are_expected_around_their_cgroup_and_far_ones_around_near_ones() {
        let task = |pid, cgroup_id| Owner::Task { pid, comm: Comm::default(), cgroup_id };
        let far = |owner| TrafficSource { owner, is_far: true };
        let mut columns = Columns::new();
        let used = [
            (near(task(1, 10)), 50.0),
            (far(task(1, 10)), 5.0),
            (near(task(2, 10)), 20.0),
            (far(task(2, 10)), 5.0),
            (near(task(3, 10)), 0.01),
            (near(task(4, 20)), 30.0),
        ];
        columns.review(&used, 2.0, (1, 100));
        let place = |source| columns.place(source);
        let parent = |source| columns.get(usize::from(place(source))).unwrap().parent;
        // The largest process, and small ones, share the column of the cgroup.
        assert_eq!(place(near(task(1, 10))), place(near(task(3, 10))));
        assert_ne!(place(near(task(1, 10))), place(near(task(2, 10))));
        assert_eq!(parent(near(task(2, 10))), Some(place(near(task(1, 10)))));
        assert_eq!(parent(far(task(2, 10))), Some(place(near(task(2, 10)))));
        assert_eq!(parent(far(task(1, 10))), Some(place(near(task(1, 10)))));
        assert_eq!(parent(near(task(4, 20))), None);
        assert_eq!(place(near(task(9, 30))), REST);
        assert_eq!(place(far(task(9, 30))), FAR_REST);
    }
}
