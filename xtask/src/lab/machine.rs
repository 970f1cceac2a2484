//! Machines of the lab: `tests/lab/machines/NAME.toml`, and their devices in the guest.

use std::fs;
use std::path::Path;
use std::rc::Rc;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use uncore_trace_lab::spec::Device;

use super::acpi::AcpiDevice;
use super::kernel::{Arch, Series};
use super::pmu::{DeviceModelKind, LabPmu};

/// Address of the registers of device N: `LAB_WINDOW` and `LAB_SLOT` of `tests/lab/model/abi.h`.
const WINDOW: u64 = 0x20_0000_0000;
const SLOT: u64 = 0x400_0000;

/// Size of an instance's register page.
const PAGE: u64 = 0x1000;

/// First interrupt that no device of the emulated board uses (QEMU's `virt` uses numbers below
/// 112).
const FIRST_INTERRUPT: u32 = 200;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineFile {
    about: String,
    /// Only arm64 machines have devices of the model.
    #[serde(default = "arm64")]
    arch: Arch,
    #[serde(default = "one")]
    sockets: u32,
    cpus_per_socket: u32,
    /// Whether there is a further CPU on a separate socket, without PMUs, for everything except the
    /// tenants.
    #[serde(default)]
    housekeeping: bool,
    /// Whether its kernels are of the flavour with `PREEMPT_RT`.
    #[serde(default)]
    realtime: bool,
    /// Kernel series with drivers for it, the default first.
    series: Vec<Series>,
    /// Its scenarios; names in `scenario::ALL`.
    scenarios: Vec<String>,
    /// Whether its CPUs alternate every few microseconds.
    #[serde(default)]
    fine: bool,
    /// QEMU's name of its CPU, with its features; default: all that QEMU can emulate.
    cpu: Option<String>,
    /// Modules of the distribution that it loads: drivers that need no device model.
    #[serde(default)]
    modules: Vec<String>,
    /// Size of a second, empty disk, MiB; 0 for none.
    #[serde(default)]
    disk_mib: u64,
    /// Size of an empty `NVMe` disk below a root port, MiB; 0 for none.
    #[serde(default)]
    nvme_mib: u64,
    #[serde(default)]
    pmu: Vec<Placed>,
}

fn arm64() -> Arch {
    Arch::Arm64
}

fn one() -> u32 {
    1
}

/// PMUs of one socket.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Placed {
    pmu: String,
    #[serde(default)]
    socket: u32,
    /// Root complexes or PCI domains, which distinguish several PMUs of a socket.
    #[serde(default = "single")]
    units: Vec<u32>,
}

fn single() -> Vec<u32> {
    vec![0]
}

/// A machine of the lab.
#[derive(Clone, Debug)]
pub(crate) struct LabMachine {
    pub name: String,
    pub about: String,
    pub arch: Arch,
    pub sockets: u32,
    pub cpus_per_socket: u32,
    pub housekeeping: bool,
    pub realtime: bool,
    pub series: Vec<Series>,
    pub scenarios: Vec<String>,
    pub fine: bool,
    pub cpu: Option<String>,
    pub modules: Vec<String>,
    pub disk_mib: u64,
    pub nvme_mib: u64,
    pub instances: Vec<Instance>,
}

/// One PMU of a machine.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    pub pmu: Rc<LabPmu>,
    /// Which description it has.
    pub model: String,
    /// Number of its device.
    pub device: u32,
    pub socket: u32,
    pub unit: u32,
    /// The name its driver gives it.
    pub name: String,
    /// CPUs next to it, one bit each.
    pub cpus: u64,
}

impl LabMachine {
    /// Reads `machines/NAME.toml` of the lab's directory.
    pub(crate) fn read(lab: &Path, name: &str) -> Result<Self> {
        let path = lab.join("machines").join(name).with_extension("toml");
        let Ok(text) = fs::read_to_string(&path) else {
            bail!("no machine {name}; there are: {}", Self::machine_names(lab)?.join(", "));
        };
        let file: MachineFile = toml::from_str(&text)
            .with_context(|| format!("{} is not a machine", path.display()))?;
        let mut instances: Vec<Instance> = Vec::new();
        for placed in &file.pmu {
            let pmu = Rc::new(LabPmu::read(&lab.join("pmus"), &placed.pmu)?);
            for &unit in &placed.units {
                let device = instances.len() as u32;
                let index = instances.iter().filter(|earlier| earlier.model == placed.pmu).count();
                let name = pmu
                    .name
                    .replace("{socket}", &placed.socket.to_string())
                    .replace("{unit}", &unit.to_string())
                    .replace("{index}", &index.to_string())
                    .replace("{page}", &format!("{:x}", register_base(device) >> 12))
                    .replace("{sbdf}", &format!("{:x}", unit << 16));
                let first_cpu = placed.socket * file.cpus_per_socket;
                let cpus = ((1 << file.cpus_per_socket) - 1) << first_cpu;
                instances.push(Instance {
                    pmu: Rc::clone(&pmu),
                    model: placed.pmu.clone(),
                    device,
                    socket: placed.socket,
                    unit,
                    name,
                    cpus,
                });
            }
        }
        Ok(Self {
            name: name.to_owned(),
            about: file.about,
            arch: file.arch,
            sockets: file.sockets,
            cpus_per_socket: file.cpus_per_socket,
            housekeeping: file.housekeeping,
            realtime: file.realtime,
            series: file.series,
            scenarios: file.scenarios,
            fine: file.fine,
            cpu: file.cpu,
            modules: file.modules,
            disk_mib: file.disk_mib,
            nvme_mib: file.nvme_mib,
            instances,
        })
    }

    /// The machine as the drivers of a kernel support it.
    #[must_use]
    pub(crate) fn for_series(&self, series: Series) -> Self {
        let mut machine = self.clone();
        for instance in &mut machine.instances {
            instance.pmu = Rc::new(instance.pmu.for_series(series));
        }
        machine
    }

    /// The names of all machines.
    pub(crate) fn machine_names(lab: &Path) -> Result<Vec<String>> {
        let dir = lab.join("machines");
        let entries =
            fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))?;
        let mut names: Vec<String> = entries
            .filter_map(|entry| {
                let path = entry.ok()?.path();
                Some(path.file_stem()?.to_str()?.to_owned())
            })
            .collect();
        names.sort();
        Ok(names)
    }

    /// CPUs of the sockets that have PMUs.
    pub(crate) fn cpu_count(&self) -> u32 {
        self.sockets * self.cpus_per_socket
    }

    /// The CPU for everything except the tenants.
    pub(crate) fn housekeeping_cpu(&self) -> Option<u32> {
        self.housekeeping.then(|| self.cpu_count())
    }

    /// Instances with this description, e.g. `grace-pcie`.
    pub(crate) fn instances_of(&self, model: &str) -> Vec<&Instance> {
        self.instances.iter().filter(|instance| instance.model == model).collect()
    }

    /// Descriptions in the order in which they are placed, without duplicates.
    pub(crate) fn model_names(&self) -> Vec<&str> {
        let mut models: Vec<&str> = Vec::new();
        for instance in &self.instances {
            if !models.contains(&instance.model.as_str()) {
                models.push(&instance.model);
            }
        }
        models
    }
}

fn register_base(device: u32) -> u64 {
    WINDOW + u64::from(device) * SLOT
}

impl Instance {
    /// Its definition for the model.
    pub(crate) fn model_definition(&self) -> Device {
        let define = &self.pmu.define;
        let mut arg = [0_u64; 12];
        let mut text = String::new();
        match self.pmu.kind {
            DeviceModelKind::Cspmu => {
                arg[0] = define.iidr;
                // PMCFGR: N, SIZE and CC.
                arg[1] = (define.counters - 1) | (define.width - 1) << 8 | 1 << 14;
                if !define.hid.is_empty() {
                    // ACPI_APMT_NODE_TYPE_ACPI
                    arg[2] = 3;
                    arg[3] = u64::from(self.device);
                    text.clone_from(&define.hid);
                }
            }
            DeviceModelKind::C2c => arg[0] = define.instances,
            DeviceModelKind::Cmn => {
                arg[..3].copy_from_slice(&define.mesh);
                for (slot, id) in arg[4..].iter_mut().zip(&define.ccla) {
                    *slot = *id;
                }
            }
            DeviceModelKind::Dwc => {
                arg[0] = u64::from(self.unit);
                arg[1] = define.lanes;
                arg[3] = 1;
            }
            DeviceModelKind::Cpu => text.clone_from(&self.name),
            DeviceModelKind::Hisi => arg[0] = define.layout,
            DeviceModelKind::Cmem | DeviceModelKind::Drw => {}
        }
        let (model_kind, arg) = (self.pmu.kind as u32, arg.to_vec());
        Device { kind: model_kind, node: self.socket, cpus: self.cpus, arg, text }
    }

    /// Its ACPI device, if its driver asks the firmware.
    pub(crate) fn acpi_device(&self) -> Option<AcpiDevice> {
        let define = &self.pmu.define;
        let base = register_base(self.device);
        let pages = |count: u64| (0..count).map(|i| (base + i * PAGE, PAGE)).collect();
        let memory: Vec<(u64, u64)> = match self.pmu.kind {
            // One page for each instance, and one for broadcasts.
            DeviceModelKind::Cmem => pages(14 + 1),
            DeviceModelKind::C2c => pages(define.instances + 1),
            DeviceModelKind::Drw => pages(1),
            DeviceModelKind::Hisi => vec![(base, 4 * PAGE)],
            DeviceModelKind::Cmn => vec![(base, SLOT)],
            DeviceModelKind::Cspmu if !define.hid.is_empty() => {
                define.page.iter().map(|offset| (base + offset, PAGE)).collect()
            }
            DeviceModelKind::Cspmu | DeviceModelKind::Dwc | DeviceModelKind::Cpu => return None,
        };
        let mut properties: Vec<(String, u64)> =
            self.pmu.properties.iter().map(|(name, value)| (name.clone(), *value)).collect();
        if self.pmu.kind == DeviceModelKind::Cspmu {
            properties.push(("instance_id".to_owned(), u64::from(self.unit)));
        }
        if self.pmu.kind == DeviceModelKind::Hisi {
            // A die is a node, see tests/lab/model/hisi.c.
            properties.push(("hisilicon,scl-id".to_owned(), u64::from(self.socket)));
        }
        let of_unit = self.pmu.unit_properties.iter();
        properties.extend(of_unit.map(|name| (name.clone(), u64::from(self.unit))));
        let interrupts = matches!(
            self.pmu.kind,
            DeviceModelKind::Cmn | DeviceModelKind::Drw | DeviceModelKind::Hisi
        );
        let interrupt = interrupts.then(|| FIRST_INTERRUPT + self.device);
        // The drivers of Tegra410 use the unique id as the socket.
        let uid = match self.pmu.kind {
            DeviceModelKind::Cmem | DeviceModelKind::C2c => self.socket,
            _ => self.device,
        };
        Some(AcpiDevice {
            name: format!("L{:03X}", self.device),
            hid: define.hid.clone(),
            node: self.socket,
            cca: true,
            uid: u64::from(uid),
            memory,
            interrupt,
            properties,
        })
    }

    /// Whether a CPU is near it.
    pub(crate) fn is_near(&self, cpu: u32) -> bool {
        self.cpus >> cpu & 1 == 1
    }
}
