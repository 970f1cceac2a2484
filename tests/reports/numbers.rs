//! Metrics with several forms, domains of counters, and CPUs near a die.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tempfile::TempDir;
use uncore_trace::catalog::Catalog;
use uncore_trace::catalog::domain::RegisterDomain;
use uncore_trace::catalog::family::{Family, PmuKind};
use uncore_trace::catalog::metric::Metric;
use uncore_trace::catalog::near::Near;
use uncore_trace::catalog::pmu_words::PmuWords;
use uncore_trace::catalog::source::TrafficCause;
use uncore_trace::discover::cpus::{CpuCache, CpuLocation};
use uncore_trace::discover::event::EventAlias;
use uncore_trace::discover::{CpuList, Cpus, Machine, Pmu, machine};
use uncore_trace::plan::{Plan, PlanRequest, plan};
use uncore_trace_lab::fixtures;

use crate::machines::{captured, planned, request};

/// The plan of one metric.
fn metric(machine: &Machine, name: &str) -> Plan {
    let request = PlanRequest { metrics: vec![name.to_owned()], ..request(&[], &[]) };
    plan(machine, &Catalog::load_embedded().unwrap(), &request).unwrap()
}

/// Granite Rapids has an event for each sub-channel (`gnr_uncore_imc_events`,
/// `arch/x86/events/intel/uncore_snbep.c`, Linux 7.2); a CAS moves 64 bytes.
#[test]
fn memory_of_granite_rapids_is_that_of_both_sub_channels() {
    let machine = captured("granite-rapids-2s");
    let sub_channel_names = |names: &[&str]| {
        let sub = |name: &&str| ["sch0", "sch1"].map(|sub| format!("{name}_{sub}"));
        names.iter().flat_map(sub).collect::<Vec<_>>()
    };
    for (name, events) in [
        ("mem_read_bandwidth", sub_channel_names(&["cas_count_read"])),
        ("mem_write_bandwidth", sub_channel_names(&["cas_count_write"])),
        ("mem_bandwidth", sub_channel_names(&["cas_count_read", "cas_count_write"])),
    ] {
        let plan = metric(&machine, name);
        for metric in &plan.metrics {
            let inputs: Vec<_> = metric.inputs.iter().map(|input| &input.name).collect();
            assert_eq!(inputs, events.iter().collect::<Vec<_>>(), "{name}");
            assert_eq!(metric.missing_inputs(), [""; 0], "{name}");
        }
        let is_channel = |pmu: &&Pmu| pmu.events.contains_key("cas_count_read_sch0");
        let channels = machine.pmus.iter().filter(is_channel);
        assert_eq!(plan.metrics.len(), 2 * channels.count(), "{name}: of two packages");
        let bytes = |counter: &uncore_trace::plan::Counter| {
            counter.unit == "bytes" && counter.scale.to_bits() == 64_f64.to_bits()
        };
        assert!(plan.counters.iter().all(bytes), "{name}");
    }
}

/// A PMU of a family for a processor, with nothing but these events and the fields of some terms.
fn with_events<'a>(
    family: &Family,
    processors: &[String],
    events: impl Iterator<Item = &'a str>,
    terms: impl Iterator<Item = &'a str>,
) -> Pmu {
    let plain = |pattern: &String| pattern.replace(['#', '*'], "0");
    let alias = |config_value| EventAlias::parse(&format!("config={config_value:#x}")).unwrap();
    Pmu {
        name: plain(&family.names[0]),
        identifier: family.identifiers.first().map(plain),
        processor: processors.first().or(family.processors.first()).map(plain),
        events: events.enumerate().map(|(at, name)| (name.to_owned(), alias(at + 1))).collect(),
        formats: terms.map(|name| (name.to_owned(), "config1:0-63".parse().unwrap())).collect(),
        ..Pmu::default()
    }
}

/// The events of a formula that have no terms of their own.
fn events<'a>(family: &'a Family, form: &'a Metric) -> impl Iterator<Item = &'a str> {
    let names = form.formula.distinct_names().into_iter();
    names.filter(|name| family.is_event(name) && !form.inputs.contains_key(*name))
}

/// Every metric of every family on PMUs with every subset of its forms.
#[test]
fn a_metric_uses_the_form_whose_events_exist() {
    let catalog = Catalog::load_embedded().unwrap();
    let mut several = 0;
    for family in &catalog.families {
        for metric in &family.metrics {
            let bare = with_events(family, &metric.processors, [].into_iter(), [].into_iter());
            if catalog.family_of(&bare).is_none_or(|its| its.family != family.family) {
                continue;
            }
            let forms = family.metric_forms(&metric.name, &bare);
            several += usize::from(forms.len() > 1);
            for subset in 1_u32..1 << forms.len() {
                let subset_forms = || {
                    let picked = |(index, _): &(usize, &&Metric)| subset >> index & 1 == 1;
                    forms.iter().enumerate().filter(picked).map(|(_, form)| *form)
                };
                let names = subset_forms().flat_map(|form| events(family, form));
                let terms = subset_forms().flat_map(|form| form.inputs.values().flatten());
                let terms = terms.map(|term| term.name.as_str());
                let pmu = with_events(family, &metric.processors, names, terms);
                let words = PmuWords::new(&catalog, &pmu);
                let has = |form: &&&Metric| {
                    events(family, form).all(|name| words.find_event(name).is_some())
                        && form.inputs.values().all(|terms| words.encode_terms(terms, &[]).is_ok())
                };
                // Terms of an input can need an event that the catalog does not name here.
                let expected = forms.iter().find(has).or(forms.first()).unwrap();
                let chosen = words.find_metric(&metric.name).unwrap();
                let is_same = std::ptr::eq(chosen, *expected);
                assert!(is_same, "{} {}: {}", family.family, metric.name, chosen.formula);
                let first = subset_forms().next().unwrap();
                let is_of_subset = first.inputs.is_empty();
                assert!(!is_of_subset || has(&&first), "{} {}", family.family, metric.name);
            }
        }
    }
    assert!(several > 5, "{several}");
}

/// The package has one energy register (`rapl_pkg_pmu_is_pkg_scope`, arch/x86/events/rapl.c, Linux
/// 7.2), whatever the `cpumask` of older kernels lists.
#[test]
fn energy_of_amd_is_per_package() {
    let cpus = |plan: &Plan| plan.counters.iter().map(|c| c.cpu).collect::<Vec<_>>();
    let machine = captured("zen3-dies-2s");
    assert_eq!(cpus(&metric(&machine, "package_power")), [0, 4]);
    let plan = planned("zen3-dies-2s", &[], &["power/energy-pkg/"]);
    assert_eq!(cpus(&plan), [0, 4]);
    let sees: Vec<_> = plan.counters.iter().map(|counter| counter.sees.to_string()).collect();
    assert_eq!(sees, ["0-3", "4-7"]);
    assert_eq!(cpus(&planned("zen3-dies-2s", &["energy"], &["power/energy-pkg/"])).len(), 2 + 8);
}

/// What a machine has beside PMUs.
struct Shape {
    vendor: &'static str,
    family: u32,
    model: u32,
    /// Package, die and NUMA node of each CPU.
    cpus: Vec<(u32, Option<u32>, u32)>,
}

/// A PMU: its name, its `cpumask` and its other files.
type Files<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);

/// A machine of a shape with these PMUs.
fn tree(shape: &Shape, pmus: &[Files<'_>]) -> (TempDir, Machine) {
    let dir = TempDir::new().unwrap();
    let write = |path: String, text: &str| {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let Shape { vendor, family, model, cpus } = shape;
    let info = format!("vendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n");
    write("proc/cpuinfo".to_owned(), &info);
    let system = "sys/devices/system";
    write(format!("{system}/cpu/online"), &format!("0-{}\n", cpus.len() - 1));
    let mut nodes: BTreeMap<u32, String> = BTreeMap::new();
    for (cpu, (package, die, node)) in cpus.iter().enumerate() {
        let topology = format!("{system}/cpu/cpu{cpu}/topology");
        write(format!("{topology}/physical_package_id"), &format!("{package}\n"));
        write(format!("{topology}/core_id"), &format!("{cpu}\n"));
        if let Some(die) = die {
            write(format!("{topology}/die_id"), &format!("{die}\n"));
        }
        write!(nodes.entry(*node).or_default(), "{cpu},").unwrap();
    }
    for (node, list) in nodes {
        write(format!("{system}/node/node{node}/cpulist"), list.trim_end_matches(','));
    }
    for (index, (name, mask, files)) in pmus.iter().enumerate() {
        let pmu = format!("sys/bus/event_source/devices/{name}");
        write(format!("{pmu}/type"), &format!("{}\n", 20 + index));
        write(format!("{pmu}/cpumask"), mask);
        for (file, text) in *files {
            write(format!("{pmu}/{file}"), text);
        }
    }
    let machine = machine(dir.path()).unwrap();
    (dir, machine)
}

/// CPU, CPUs near and CPUs far of each counter.
fn sight(machine: &Machine, event: &str) -> Vec<(u32, String, String)> {
    let catalog = Catalog::load_embedded().unwrap();
    let plan = plan(machine, &catalog, &request(&[], &[event])).unwrap();
    let near_cpus = |c: &uncore_trace::plan::Counter| {
        c.sees.iter().filter(|cpu| !c.far.contains(*cpu)).collect::<CpuList>().to_string()
    };
    plan.counters.iter().map(|c| (c.cpu, near_cpus(c), c.far.to_string())).collect()
}

/// CPU and CPUs near of each.
fn only_near(sight: &[(u32, String, String)]) -> Vec<(u32, &str)> {
    sight.iter().map(|(cpu, near_cpus, _)| (*cpu, near_cpus.as_str())).collect()
}

const EVENT: &[(&str, &str)] =
    &[("format/event", "config:0-7\n"), ("format/umask", "config:8-15\n")];

/// A package of two dies of two CPUs each, twice.
fn dies(node_per_die: bool, has_dies: bool) -> Vec<(u32, Option<u32>, u32)> {
    let place = |cpu: u32| {
        let (package, die) = (cpu / 4, cpu / 2 % 2);
        let node = if node_per_die { cpu / 2 } else { package };
        (package, Some(if has_dies { die } else { 0 }), node)
    };
    (0..8).map(place).collect()
}

fn owned_sight(list: &[(u32, &str, &str)]) -> Vec<(u32, String, String)> {
    list.iter().map(|(cpu, near, far)| (*cpu, (*near).to_owned(), (*far).to_owned())).collect()
}

/// Cascade Lake-AP: uncore PMUs and RAPL are per die (arch/x86/events/rapl.c, Linux 7.2).
#[test]
fn a_counter_of_one_die_sees_the_cpus_of_that_die() {
    let shape = Shape { vendor: "GenuineIntel", family: 6, model: 85, cpus: dies(true, true) };
    let energy: &[(&str, &str)] =
        &[("format/event", "config:0-7\n"), ("events/energy-pkg", "event=0x02\n")];
    let pmus = [
        ("uncore_imc_0", "0,2,4,6\n", EVENT),
        ("uncore_imc_1", "0,4\n", EVENT),
        ("power", "0,2,4,6\n", energy),
    ];
    let (_dir, machine) = tree(&shape, &pmus);
    let all = owned_sight(&[
        (0, "0-1", "2-7"),
        (2, "2-3", "0-1,4-7"),
        (4, "4-5", "0-3,6-7"),
        (6, "6-7", "0-5"),
    ]);
    assert_eq!(sight(&machine, "uncore_imc_0/event=0x1/"), all);
    let energy = sight(&machine, "power/energy-pkg/");
    assert_eq!(only_near(&energy), [(0, "0-1"), (2, "2-3"), (4, "4-5"), (6, "6-7")]);
    let packages = sight(&machine, "uncore_imc_1/event=0x1/");
    assert_eq!(only_near(&packages), [(0, "0-3"), (4, "4-7")]);
}

/// Zen 1: the kernel has no dies before Linux 5.10, but a NUMA node for each.
#[test]
fn a_numa_node_tells_dies_without_a_number_apart() {
    for has_dies in [true, false] {
        let shape =
            Shape { vendor: "AuthenticAMD", family: 23, model: 1, cpus: dies(true, has_dies) };
        let (_dir, machine) = tree(&shape, &[("amd_df", "0,2,4,6\n", EVENT)]);
        let sight = sight(&machine, "amd_df/event=0x7,umask=0x38/");
        assert_eq!(
            only_near(&sight),
            [(0, "0-1"), (2, "2-3"), (4, "4-5"), (6, "6-7")],
            "{has_dies}"
        );
    }
}

/// With sub-NUMA clusters the memory controllers of a package have one reader CPU.
#[test]
fn nodes_within_a_package_do_not_divide_a_counter_of_the_package() {
    let shape = Shape { vendor: "GenuineIntel", family: 6, model: 143, cpus: dies(true, false) };
    let (_dir, machine) = tree(&shape, &[("uncore_imc_0", "0,4\n", EVENT)]);
    let expected = owned_sight(&[(0, "0-3", "4-7"), (4, "4-7", "0-3")]);
    assert_eq!(sight(&machine, "uncore_imc_0/event=0x1/"), expected);
}

/// On Arm each instance is a PMU of its own.
#[test]
fn pmus_of_dies_with_one_reader_cpu_each_see_their_die() {
    let shape = Shape { vendor: "none", family: 0, model: 0, cpus: dies(true, false) };
    let mesh: &[(&str, &str)] = &[
        ("format/type", "config:0-15\n"),
        ("format/eventid", "config:16-26\n"),
        ("events/hnf_mc_reqs", "type=0x5,eventid=0xd\n"),
    ];
    let pmus = ["0\n", "2\n", "4\n", "6\n"];
    let names = ["arm_cmn_0", "arm_cmn_1", "arm_cmn_2", "arm_cmn_3"];
    let pmus: Vec<_> = names.iter().zip(pmus).map(|(name, mask)| (*name, mask, mesh)).collect();
    let (_dir, machine) = tree(&shape, &pmus);
    let expected = owned_sight(&[(2, "2-3", "0-1,4-7")]);
    assert_eq!(sight(&machine, "arm_cmn_1/hnf_mc_reqs/"), expected);
}

/// Every PMU of every machine: CPUs that one PMU is read on are near different CPUs, unless the
/// catalog says that all are near, and the CPUs near its readers are those of their parts.
#[test]
fn cpus_near_one_reader_are_not_near_another_reader() {
    let catalog = Catalog::load_embedded().unwrap();
    let mut compared = 0;
    for name in fixtures::names().unwrap() {
        let machine = captured(&name);
        for pmu in
            machine.pmus.iter().filter(|pmu| pmu.cpumask.as_ref().is_some_and(|m| m.len() > 1))
        {
            let words = PmuWords::new(&catalog, pmu);
            let Some(event) = words.all_events().next() else { continue };
            let one_value = words.family.is_some_and(|family| {
                family.kind != PmuKind::Uncore
                    || family.near_rule(event.name).is_some_and(|rule| rule.index.is_some())
            });
            let text = format!("{}/{}/", pmu.name, event.name);
            let Ok(plan) = plan(&machine, &catalog, &request(&[], &[&text])) else { continue };
            let mut all_near = Vec::new();
            for counter in &plan.counters {
                all_near.extend(counter.sees.iter().filter(|cpu| !counter.far.contains(*cpu)));
            }
            let all = all_near.len();
            all_near.sort_unstable();
            all_near.dedup();
            assert!(one_value || all_near.len() == all, "{name} {text}: {}", plan.render_plan());
            compared += 1;
        }
    }
    assert!(compared > 30, "{compared}");
}

/// A driver that names no events of a memory controller leaves its free-running counters, or those
/// of the data fabric.
#[test]
fn a_preferred_family_without_events_does_not_replace_another() {
    let shape = Shape { vendor: "GenuineIntel", family: 6, model: 143, cpus: dies(false, false) };
    let free: &[(&str, &str)] = &[
        ("format/event", "config:0-7\n"),
        ("format/umask", "config:8-15\n"),
        ("events/read", "event=0xff,umask=0x20"),
        ("events/write", "event=0xff,umask=0x30"),
    ];
    let bare = [("uncore_imc_0", "0,4\n", &[][..]), ("uncore_imc_free_running_0", "0,4\n", free)];
    let (_dir, machine) = tree(&shape, &bare);
    let catalog = Catalog::load_embedded().unwrap();
    let plan = plan(&machine, &catalog, &request(&["mem"], &[])).unwrap();
    let counted = || plan.counters.iter().all(|counter| counter.pmu.contains("free_running"));
    assert!(plan.counters.len() == 4 && counted(), "{}", plan.render_plan());
}

/// The parts of a machine of [`dies`], by CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Machine,
    Package,
    Die,
    Core,
}

impl Part {
    /// The number of the part that has a CPU.
    fn part_number(self, cpu: u32) -> u32 {
        match self {
            Self::Machine => 0,
            Self::Package => cpu / 4,
            Self::Die => cpu / 2,
            Self::Core => cpu,
        }
    }

    /// The first CPU of each part.
    fn readers(self) -> CpuList {
        (0..8)
            .filter(|cpu| *cpu == 0 || self.part_number(*cpu) != self.part_number(cpu - 1))
            .collect()
    }
}

/// What an event of a family is read on and near to, if the `cpumask` has a CPU of each part: as
/// the rules of the catalog say, worked out without the planner.
fn expected(family: &Family, pmu: &Pmu, event: &str, mask: Part) -> (Part, Part) {
    let register = match family.register_domain(pmu, event) {
        Some(RegisterDomain::Machine) => Part::Machine,
        Some(RegisterDomain::Package) if mask == Part::Machine => Part::Machine,
        Some(RegisterDomain::Package) => Part::Package,
        None => mask,
    };
    let near_part = match family.near_rule(event).map(|rule| rule.cpus) {
        Some(Near::All) => Part::Machine,
        Some(Near::Socket) => Part::Package,
        Some(Near::Node | Near::Cache) => Part::Die,
        Some(Near::Core) => Part::Core,
        // One reader CPU is one of a package.
        None if family.register_domain(pmu, event) == Some(RegisterDomain::Machine) => {
            Part::Machine
        }
        None if register == Part::Machine => Part::Package,
        None => register,
    };
    (register, near_part)
}

/// Every family on a machine of two packages of two dies, each of two cores, a cache and a NUMA
/// node, with a `cpumask` by package, die and core.
#[test]
fn each_family_is_read_once_a_register_and_sees_its_part() {
    let catalog = Catalog::load_embedded().unwrap();
    let mut machine = captured("vm-no-uncore");
    let place = |cpu: u32| CpuLocation {
        package: Some((cpu / 4) as i16),
        die: Some((cpu / 2 % 2) as i16),
        node: Some(cpu / 2),
        core: Some(cpu as i32),
        cluster: None,
        cache: Some(CpuCache { level: 3, first_cpu: cpu / 2 * 2 }),
    };
    let places = (0..8).map(|cpu| (cpu, place(cpu))).collect();
    machine.cpus = Cpus::new((0..8).collect(), (0..8).collect(), places);
    let mut compared = 0;
    for family in catalog.families.iter().filter(|family| family.kind == PmuKind::Uncore) {
        let rules = family.near.iter().map(|rule| (&rule.events, rule.index));
        let domains = family.domains.iter().map(|rule| (&rule.events, None));
        let names = rules.chain(domains).filter(|(_, index)| index.is_none());
        let names = names.flat_map(|(events, _)| events.iter().map(String::as_str));
        let names: Vec<&str> = names.filter(|name| !name.contains(['*', '|'])).collect();
        let masks = [Part::Machine, Part::Package, Part::Die, Part::Core];
        let domain_processors = family.domains.iter().flat_map(|rule| &rule.processors);
        let processors: Vec<_> =
            domain_processors.map(std::slice::from_ref).chain([&[][..]]).collect();
        let cases = masks.iter().flat_map(|mask| processors.iter().map(|group| (*mask, *group)));
        for (mask, processors) in cases {
            let mut pmu =
                with_events(family, processors, names.iter().copied(), ["event"].into_iter());
            pmu.events.insert("some-event".to_owned(), EventAlias::parse("config=0xff").unwrap());
            pmu.attr_type = 99;
            pmu.cpumask = Some(mask.readers());
            for event in pmu.events.keys().cloned().collect::<Vec<_>>() {
                machine.pmus = vec![pmu.clone()];
                let text = format!("{}/{event}/", pmu.name);
                let Ok(plan) = plan(&machine, &catalog, &request(&[], &[&text])) else { continue };
                let (register, near) = expected(family, &pmu, &event, mask);
                let readers: CpuList = plan.counters.iter().map(|counter| counter.cpu).collect();
                assert_eq!(readers, register.readers(), "{text} {mask:?}");
                let of_cpus = family.possible_causes(&pmu, &event, "").contains(&TrafficCause::Cpu);
                for counter in plan.counters.iter().filter(|_| of_cpus) {
                    let near_cpus = counter.sees.iter().filter(|cpu| !counter.far.contains(*cpu));
                    let part_cpus = (0..8)
                        .filter(|cpu| near.part_number(*cpu) == near.part_number(counter.cpu));
                    assert!(near_cpus.eq(part_cpus), "{text} {mask:?}: {}", plan.render_plan());
                }
                compared += 1;
            }
        }
    }
    assert!(compared > 150, "{compared}");
}
