//! Describes the machine of a measurement without naming the host.

use std::fs;

/// CPU model, number of CPUs, kernel version, and whether it is a virtual machine; `unknown` for
/// what cannot be read.
pub(super) fn describe_machine() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    machine_text(&cpuinfo, &release)
}

fn machine_text(cpuinfo: &str, release: &str) -> String {
    let field = |name: &str| {
        cpuinfo.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim())
        })
    };
    // arm64 names no model but the maker's part number.
    let model = field("model name")
        .map(str::to_owned)
        .or_else(|| Some(format!("CPU {}:{}", field("CPU implementer")?, field("CPU part")?)));
    let model = model.unwrap_or_else(|| "unknown CPU".to_owned());
    let cpus = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    // The suffix of a release is chosen by its builder, and may be the name of a host.
    let end = release.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(release.len());
    let kernel = match release[..end].trim_end_matches('.') {
        "" => "unknown",
        version => version,
    };
    let vm = field("flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"));
    let vm_note = if vm { ", virtual machine" } else { "" };
    format!("{model}, {cpus} CPUs{vm_note}, Linux {kernel}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x86_arm_and_unknown() {
        let x86 =
            "processor\t: 0\nmodel name\t: AMD EPYC\nflags\t: fpu hypervisor\nprocessor\t: 1\n";
        assert_eq!(
            machine_text(x86, "6.18.44-builder7\n"),
            "AMD EPYC, 2 CPUs, virtual machine, Linux 6.18.44"
        );
        let arm = "processor : 0\nCPU implementer : 0x41\nCPU part : 0xd4f\n";
        assert_eq!(machine_text(arm, "7.2\n"), "CPU 0x41:0xd4f, 1 CPUs, Linux 7.2");
        assert_eq!(machine_text("", ""), "unknown CPU, 0 CPUs, Linux unknown");
    }
}
