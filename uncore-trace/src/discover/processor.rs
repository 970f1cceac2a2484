//! The processor, as far as it says which PMUs the machine should have.

use std::path::Path;

use serde::Serialize;

use super::read::read_bytes;

/// The vendor of an x86 CPU, or the main ID register of an arm64 CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ProcessorId {
    /// Intel.
    Intel,
    /// AMD, or Hygon, whose processors are derived from AMD's.
    Amd,
    /// `MIDR_EL1` (Arm ARM): implementer 31:24, variant 23:20, architecture 19:16, part 15:4,
    /// revision 3:0.
    Arm(u32),
}

/// The processor of the machine. If there are several kinds, that of the first CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Processor {
    /// Its vendor, or its ID register.
    pub id: ProcessorId,
    /// `cpu family` and `model` of an x86 processor.
    pub model: Option<(u32, u32)>,
    /// Its name for users: the model name, or the main ID register.
    pub name: String,
    /// Whether the CPU reports a hypervisor (x86 only: CPUID.1:ECX bit 31).
    pub hypervisor: bool,
}

impl Processor {
    /// Reads the processor from `midr_el1` or `proc/cpuinfo`; `None` if neither says.
    pub fn read(root: &Path) -> Option<Self> {
        let text = |path: &str| {
            Some(String::from_utf8_lossy(&read_bytes(&root.join(path)).ok()?).trim().to_owned())
        };
        Self::arm_cpu(root, 0).or_else(|| Self::parse_cpuinfo(&text("proc/cpuinfo")?))
    }

    /// The processor of one CPU of an arm64 machine, which may have several kinds; `None` on other
    /// machines.
    pub fn arm_cpu(root: &Path, cpu: u32) -> Option<Self> {
        let file = format!("sys/devices/system/cpu/cpu{cpu}/regs/identification/midr_el1");
        let bytes = read_bytes(&root.join(file)).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let midr = u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()?;
        Some(Self::from_midr(midr as u32))
    }

    /// Its name in perf's tables (`tools/perf/pmu-events/arch/*/mapfile.csv`, Linux 7.2):
    /// `VENDOR-FAMILY-MODEL` on x86, with the model in hex, and the main ID register on arm64.
    pub fn generation_name(&self) -> Option<String> {
        let vendor = match self.id {
            ProcessorId::Intel => "GenuineIntel",
            ProcessorId::Amd => "AuthenticAMD",
            ProcessorId::Arm(midr) => return Some(format!("{midr:#018x}")),
        };
        let (family, model) = self.model?;
        Some(format!("{vendor}-{family}-{model:x}"))
    }

    /// Parses the first processor of `proc/cpuinfo`, in the form of x86 or arm64.
    fn parse_cpuinfo(cpuinfo: &str) -> Option<Self> {
        let field = |name: &str| {
            cpuinfo.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                (key.trim() == name).then(|| value.trim())
            })
        };
        if let Some(vendor) = field("vendor_id") {
            let id = match vendor {
                "GenuineIntel" => ProcessorId::Intel,
                "AuthenticAMD" | "HygonGenuine" => ProcessorId::Amd,
                _ => return None,
            };
            let family = field("cpu family").unwrap_or("?");
            let model = field("model").unwrap_or("?");
            let number = |text: Option<&str>| text?.parse().ok();
            return Some(Self {
                id,
                model: number(field("cpu family")).zip(number(field("model"))),
                name: format!(
                    "{} (family {family}, model {model})",
                    field("model name").unwrap_or(vendor)
                ),
                hypervisor: field("flags")
                    .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            });
        }
        let implementer = parse_hex(field("CPU implementer")?)? & 0xff;
        let part_number = parse_hex(field("CPU part")?)? & 0xfff;
        let variant = field("CPU variant").and_then(parse_hex).unwrap_or_default() & 0xf;
        let revision = field("CPU revision").and_then(|text| text.parse().ok()).unwrap_or(0_u32);
        // cpuinfo prints architecture 8 for the register's 0xf, "see the ID registers".
        let midr =
            implementer << 24 | variant << 20 | 0xf << 16 | part_number << 4 | revision & 0xf;
        Some(Self::from_midr(midr))
    }

    fn from_midr(midr: u32) -> Self {
        Self {
            id: ProcessorId::Arm(midr),
            model: None,
            name: format!("MIDR {midr:#010x}"),
            hypervisor: false,
        }
    }
}

fn parse_hex(text: &str) -> Option<u32> {
    u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    const MIDR: &str = "sys/devices/system/cpu/cpu0/regs/identification/midr_el1";

    fn read(files: &[(&str, &str)]) -> Option<Processor> {
        let dir = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Processor::read(dir.path())
    }

    #[test]
    fn an_arm_processor_is_known_by_register_or_cpuinfo() {
        let by_register = read(&[(MIDR, "0x00000000410fd4f0\n")]).unwrap();
        assert_eq!(by_register.id, ProcessorId::Arm(0x410f_d4f0));
        let cpuinfo = "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU \
                       architecture: 8\nCPU variant\t: 0x1\nCPU part\t: 0xd4f\nCPU revision\t: 3\n";
        assert_eq!(by_register.generation_name().unwrap(), "0x00000000410fd4f0");
        assert_eq!(read(&[("proc/cpuinfo", cpuinfo)]).unwrap().id, ProcessorId::Arm(0x411f_d4f3));
    }

    #[test]
    fn an_x86_processor_is_known_with_its_hypervisor() {
        let amd = "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD \
                   EPYC\nflags\t\t: fpu hypervisor lahf_lm\n";
        let cpu = read(&[("proc/cpuinfo", amd)]).unwrap();
        assert_eq!((cpu.id, cpu.hypervisor), (ProcessorId::Amd, true));
        assert_eq!(cpu.name, "AMD EPYC (family 25, model 17)");
        assert_eq!(cpu.generation_name().unwrap(), "AuthenticAMD-25-11");
        let intel = "vendor_id\t: GenuineIntel\nflags\t: fpu no_hypervisor_here\n";
        let cpu = read(&[("proc/cpuinfo", intel)]).unwrap();
        assert_eq!((cpu.id, cpu.hypervisor), (ProcessorId::Intel, false));
    }

    #[test]
    fn an_unknown_processor_is_none() {
        assert_eq!(read(&[]), None);
        assert_eq!(read(&[("proc/cpuinfo", "isa : rv64imafdc\n")]), None);
        assert_eq!(read(&[("proc/cpuinfo", "vendor_id : Elbrus\n")]), None);
    }

    proptest! {
        #[test]
        fn cpuinfo_never_panics(text in "(vendor_id|CPU part|CPU implementer| |:|0x|[a-f0-9]|\n)*") {
            let _cpu = Processor::parse_cpuinfo(&text);
        }
    }
}
