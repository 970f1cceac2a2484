//! Which CPU is here, as far as it tells which PMUs the machine should have.

use super::Machine;

const MIDR: &str = "sys/devices/system/cpu/cpu0/regs/identification/midr_el1";

/// The maker's name of an x86 CPU, or the main ID register of an arm64 one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Id {
    Intel,
    Amd,
    /// `MIDR_EL1` (Arm ARM): implementer 31:24, variant 23:20, architecture 19:16, part 15:4,
    /// revision 3:0.
    Arm(u32),
}

/// The CPU of the machine. A machine with several kinds is told by its first CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cpu {
    pub(super) id: Id,
    /// What a user calls it: the model name, or the main ID register.
    pub(super) name: String,
    /// Whether the CPU itself says that a hypervisor runs it (x86 only: CPUID.1:ECX bit 31).
    pub(super) hypervisor: bool,
}

impl Cpu {
    /// The CPU from `midr_el1`, else from `proc/cpuinfo`; `None` where neither tells.
    pub(super) fn read(machine: &Machine) -> Option<Self> {
        let midr = machine.text(MIDR).ok().and_then(|text| {
            u64::from_str_radix(text.trim_start_matches("0x"), 16).ok().map(|midr| midr as u32)
        });
        let midr = midr.map(Self::arm);
        midr.or_else(|| Self::parse(&machine.text("proc/cpuinfo").ok()?))
    }

    /// Reads the first processor of `proc/cpuinfo`, in x86's or arm64's words.
    fn parse(cpuinfo: &str) -> Option<Self> {
        let field = |name: &str| {
            cpuinfo.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                (key.trim() == name).then(|| value.trim())
            })
        };
        if let Some(vendor) = field("vendor_id") {
            let id = match vendor {
                "GenuineIntel" => Id::Intel,
                "AuthenticAMD" | "HygonGenuine" => Id::Amd,
                _ => return None,
            };
            let family = field("cpu family").unwrap_or("?");
            let model = field("model").unwrap_or("?");
            return Some(Self {
                id,
                name: format!(
                    "{} (family {family}, model {model})",
                    field("model name").unwrap_or(vendor)
                ),
                hypervisor: field("flags")
                    .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            });
        }
        let implementer = hex(field("CPU implementer")?)? & 0xff;
        let part = hex(field("CPU part")?)? & 0xfff;
        // cpuinfo prints architecture 8 for the register's 0xf, "see the ID registers".
        Some(Self::arm(implementer << 24 | 0xf << 16 | part << 4))
    }

    fn arm(midr: u32) -> Self {
        Self { id: Id::Arm(midr), name: format!("MIDR {midr:#010x}"), hypervisor: false }
    }
}

fn hex(text: &str) -> Option<u32> {
    u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::super::machine::fake;
    use super::*;
    use proptest::prelude::*;

    fn read(files: &[(&str, &str)]) -> Option<Cpu> {
        Cpu::read(&Machine::at(fake(files).path()))
    }

    #[test]
    fn arm_by_register_and_by_cpuinfo() {
        let by_register = read(&[(MIDR, "0x00000000410fd4f0\n")]).unwrap();
        assert_eq!(by_register.id, Id::Arm(0x410f_d4f0));
        let cpuinfo = "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\n\
                       CPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: 0xd4f\n\
                       CPU revision\t: 0\n";
        assert_eq!(read(&[("proc/cpuinfo", cpuinfo)]).unwrap().id, Id::Arm(0x410f_d4f0));
    }

    #[test]
    fn x86_and_its_hypervisor() {
        let amd = "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\n\
                   model name\t: AMD EPYC\nflags\t\t: fpu hypervisor lahf_lm\n";
        let cpu = read(&[("proc/cpuinfo", amd)]).unwrap();
        assert_eq!((cpu.id, cpu.hypervisor), (Id::Amd, true));
        assert_eq!(cpu.name, "AMD EPYC (family 25, model 1)");
        let intel = "vendor_id\t: GenuineIntel\nflags\t: fpu no_hypervisor_here\n";
        let cpu = read(&[("proc/cpuinfo", intel)]).unwrap();
        assert_eq!((cpu.id, cpu.hypervisor), (Id::Intel, false));
    }

    #[test]
    fn unknown_is_none() {
        assert_eq!(read(&[]), None);
        assert_eq!(read(&[("proc/cpuinfo", "isa : rv64imafdc\n")]), None);
        assert_eq!(read(&[("proc/cpuinfo", "vendor_id : Elbrus\n")]), None);
    }

    proptest! {
        #[test]
        fn cpuinfo_never_panics(text in "(vendor_id|CPU part|CPU implementer| |:|0x|[a-f0-9]|\n)*") {
            let _cpu = Cpu::parse(&text);
        }
    }
}
