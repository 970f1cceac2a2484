//! A PMU, from its directory in `/sys/bus/event_source/devices`.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;

use serde::Serialize;

use super::cpulist::CpuList;
use super::event::{EventAlias, number};
use super::format::FormatField;
use super::name;
use super::processor::Processor;
use super::read::Problems;
use super::statistics::KernelCountedDevice;

/// A PMU. A missing file is `None` or an empty map.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Pmu {
    /// The name of its directory.
    pub name: String,
    /// `alias`: its other name, that of Intel's PMU without a name of its own
    /// (`Documentation/ABI/testing/sysfs-bus-event_source-devices-uncore`, Linux 7.2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// `type`: the `perf_event_attr.type` of its events, dynamic for nearly all PMUs.
    pub attr_type: u32,
    /// `cpumask`: its reader CPUs. Empty if all of them are offline; `None` (no file) for core and
    /// software PMUs, and for the uncore PMUs of some old drivers.
    pub cpumask: Option<CpuList>,
    /// `cpus`: the CPUs of a core PMU.
    pub cpus: Option<CpuList>,
    /// `associated_cpus`: the CPUs near an `arm_cspmu` PMU.
    pub associated_cpus: Option<CpuList>,
    /// `identifier`, or the corresponding file of Alibaba's driver.
    pub identifier: Option<String>,
    /// The processor that it belongs to ([`Processor::generation_name`]); for a core PMU that of
    /// its first CPU. It distinguishes the generations of a PMU, which its files do not.
    pub processor: Option<String>,
    /// `die<N>` of Intel's PMUs: the unit on the N-th die, which for an IIO stack is the
    /// `domain:bus` of a root bus (`Documentation/ABI/testing/sysfs-devices-mapping`, Linux 7.2).
    pub dies: BTreeMap<u32, String>,
    /// `bdf_min` and `bdf_max` of Kunpeng's PMUs: the requester ids of the counted root ports
    /// (`Documentation/admin-guide/perf/hisi-pcie-pmu.rst`, Linux 7.2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bdf_range: Option<RangeInclusive<u16>>,
    /// `format/`: the terms of its events.
    #[serde(skip)]
    pub formats: BTreeMap<String, FormatField>,
    /// `events/`: its named events.
    #[serde(skip)]
    pub events: BTreeMap<String, EventAlias>,
    /// `perf_event_mux_interval_ms`: the multiplexing interval, in ms.
    pub mux_interval_ms: Option<u32>,
    /// `peer` of NVIDIA's Tegra410: number of units at the other end of its link, by kind: `gpu`,
    /// `cpu` or `cxlmem` (`drivers/perf/nvidia_t410_c2c_pmu.c`, Linux 7.2).
    pub peers: BTreeMap<String, u32>,
    /// `caps/`: the capabilities of a core PMU, by file.
    pub caps: BTreeMap<String, String>,
    /// The device that it stands for, if it is a disk or an interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub statistics: Option<KernelCountedDevice>,
}

impl Pmu {
    /// Whether a unit of this kind is at the other end of its link; `true` for no kind.
    pub fn has_peer(&self, unit_kind: Option<&String>) -> bool {
        unit_kind
            .is_none_or(|peer_kind| self.peers.get(peer_kind).is_some_and(|number| *number > 0))
    }

    /// Reads the PMU in `dir`; `None`, with a problem, if its type cannot be read.
    pub(super) fn read(
        dir: &Path,
        name: &str,
        processor: Option<&Processor>,
        problems: &mut Problems,
    ) -> Option<Self> {
        let type_file = dir.join("type");
        let noted = problems.0.len();
        let Some(attr_type) = problems.read_parsed(&type_file) else {
            if problems.0.len() == noted {
                problems.note_problem(
                    &type_file,
                    &"there is no such file, so this PMU cannot be opened",
                );
            }
            return None;
        };
        let identifier = problems
            .read_line(&dir.join("identifier"))
            // drivers/perf/alibaba_uncore_drw_pmu.c uses this name, Linux 6.12 to 7.3.
            .or_else(|| problems.read_line(&dir.join("ali_drw_pmu_identifier")));
        Some(Self {
            name: name.to_owned(),
            alias: problems.read_line(&dir.join("alias")).filter(|alias| !alias.is_empty()),
            attr_type,
            cpumask: problems.read_parsed(&dir.join("cpumask")),
            cpus: problems.read_parsed(&dir.join("cpus")),
            associated_cpus: problems.read_parsed(&dir.join("associated_cpus")),
            identifier,
            processor: processor.and_then(Processor::generation_name),
            dies: read_dies(dir, problems),
            bdf_range: read_bdf_range(dir, problems),
            formats: read_files(&dir.join("format"), problems, Problems::read_parsed),
            events: read_events(&dir.join("events"), problems),
            mux_interval_ms: problems.read_parsed(&dir.join("perf_event_mux_interval_ms")),
            peers: read_peers(&dir.join("peer"), problems),
            caps: read_files(&dir.join("caps"), problems, Problems::read_line),
            statistics: None,
        })
    }

    /// Whether `word` is the full name of this PMU ([`name::is_whole`]).
    pub fn is_called(&self, word: &str) -> bool {
        self.all_names().any(|pmu_name| name::is_whole(word, pmu_name))
    }

    /// Whether `word` selects this PMU ([`name::selects_pmu`]).
    pub fn is_meant(&self, word: &str) -> bool {
        self.all_names().any(|pmu_name| name::selects_pmu(word, pmu_name))
    }

    fn all_names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.name.as_str()).chain(self.alias.as_deref())
    }

    /// The event called `name`: the exact name, else case-insensitive, because one driver changed
    /// the case of its names between kernels (`dwc_pcie_pmu`, 6.12 and 7.2).
    pub fn find_event(&self, name: &str) -> Option<(&str, &EventAlias)> {
        self.events
            .get_key_value(name)
            .or_else(|| self.events.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)))
            .map(|(known, event)| (known.as_str(), event))
    }
}

fn read_bdf_range(dir: &Path, problems: &mut Problems) -> Option<RangeInclusive<u16>> {
    let parse = |text: &str| number(text).ok().and_then(|id| u16::try_from(id).ok());
    let mut id = |file| problems.read_as(&dir.join(file), "an id of a root port", parse);
    Some(id("bdf_min")?..=id("bdf_max")?)
}

fn read_dies(dir: &Path, problems: &mut Problems) -> BTreeMap<u32, String> {
    let names = problems.read_names(dir);
    let dies =
        names.iter().filter_map(|name| Some((name.strip_prefix("die")?.parse().ok()?, name)));
    dies.filter_map(|(die, name)| Some((die, problems.read_line(&dir.join(name))?))).collect()
}

/// Parses the lines `nr_KIND=COUNT` of a `peer` file.
fn read_peers(file: &Path, problems: &mut Problems) -> BTreeMap<String, u32> {
    let text = problems.read_text(file).unwrap_or_default();
    let parse_line = |line: &str| {
        let (unit_kind, count) = line.trim().strip_prefix("nr_")?.split_once('=')?;
        Some((unit_kind.to_owned(), count.parse().ok()?))
    };
    text.lines().filter_map(parse_line).collect()
}

/// The files in a directory, by name, as `read` reads them.
fn read_files<T>(
    dir: &Path,
    problems: &mut Problems,
    read: fn(&mut Problems, &Path) -> Option<T>,
) -> BTreeMap<String, T> {
    let names = problems.read_names(dir).into_iter();
    names.filter_map(|name| Some((name.clone(), read(problems, &dir.join(name))?))).collect()
}

/// Suffixes of the files that describe an event further.
const ASIDES: [&str; 4] = [".scale", ".unit", ".per-pkg", ".snapshot"];

fn read_events(dir: &Path, problems: &mut Problems) -> BTreeMap<String, EventAlias> {
    let mut events = BTreeMap::new();
    for name in problems.read_names(dir) {
        if ASIDES.iter().any(|aside| name.ends_with(aside)) {
            continue;
        }
        let path = dir.join(&name);
        let Some(text) = problems.read_text(&path) else { continue };
        let parsed = problems.keep_read(&path, EventAlias::parse(&text));
        let Some(mut event) = parsed else { continue };
        let aside = |aside: &str| dir.join(format!("{name}{aside}"));
        event.scale = problems.read_parsed(&aside(".scale"));
        event.unit = problems.read_line(&aside(".unit"));
        event.per_pkg = problems.read_line(&aside(".per-pkg")).is_some_and(|text| text == "1");
        event.snapshot = problems.read_line(&aside(".snapshot")).is_some_and(|text| text == "1");
        if event.scale.is_none() && aside(".scale").exists() {
            // Without its scale, a count would silently be wrong by a factor.
            continue;
        }
        events.insert(name, event);
    }
    events
}
