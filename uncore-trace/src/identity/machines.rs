//! Finds the virtual machine in a component of a cgroup path.
//!
//! The forms are those of libvirt, systemd-machined, Proxmox VE, Firecracker's jailer and Kata
//! Containers. A virtual machine is named as a container is: it is what runs a tenant's programs.

use std::borrow::Cow;

use super::containers::is_id;

/// Drivers of libvirt that put their machines into cgroups.
const DRIVERS: [&str; 3] = ["qemu", "lxc", "ch"];

/// The name of the machine whose cgroup has this component below `above`.
pub(super) fn machine<'a>(part: &'a str, above: &str) -> Option<Cow<'a, str>> {
    let name = by_systemd(part, above).or_else(|| {
        let plain = by_libvirt(part).or_else(|| jailed(part, above)).or_else(|| kata(part));
        plain.map(Cow::Borrowed)
    });
    name.filter(|name| !name.is_empty())
}

/// The units of systemd-machined, systemd-nspawn and systemd-vmspawn, whose names are escaped, and
/// the scopes of Proxmox VE: `qemu.slice/VMID.scope`.
fn by_systemd<'a>(part: &'a str, above: &str) -> Option<Cow<'a, str>> {
    if let Some(service) = part.strip_suffix(".service") {
        let name = service.strip_prefix("systemd-nspawn@");
        return name.or_else(|| service.strip_prefix("systemd-vmspawn@")).map(unescape);
    }
    let scope = part.strip_suffix(".scope")?;
    let slice = above.strip_suffix(".slice")?;
    if slice == "qemu" && is_number(scope) {
        return Some(Cow::Borrowed(scope));
    }
    let name = unescape(scope.strip_prefix("machine-")?);
    let of_libvirt = domain(&name).map(ToOwned::to_owned);
    // A domain of libvirt may be in a slice of its own (`<resource><partition>`).
    let registered = slice == "machine" || slice.starts_with("machine-");
    of_libvirt.map(Cow::Owned).or_else(|| registered.then_some(name))
}

/// libvirt without systemd: `MACHINE.libvirt-DRIVER` (`virCgroupNewDomainPartition`,
/// `src/util/vircgroup.c`).
fn by_libvirt(part: &str) -> Option<&str> {
    let (name, driver) = part.rsplit_once(".libvirt-")?;
    DRIVERS.contains(&driver).then(|| domain(name).unwrap_or(name))
}

/// The domain in a machine name of libvirt: `DRIVER-ID-DOMAIN`, with the user before the id in a
/// session, and `embed-HASH` there for an embedded driver (`virDomainDriverGenerateMachineName`,
/// `src/hypervisor/domain_driver.c`). libvirt leaves characters out that a host name has not, and cuts
/// the whole at 64.
fn domain(machine: &str) -> Option<&str> {
    let (driver, mut rest) = machine.split_once('-')?;
    if !DRIVERS.contains(&driver) {
        return None;
    }
    if let Some(embedded) = rest.strip_prefix("embed-") {
        rest = embedded.split_once('-')?.1;
    }
    loop {
        let (id, name) = rest.split_once('-')?;
        if is_number(id) {
            return (!name.is_empty()).then_some(name);
        }
        rest = name;
    }
}

/// Firecracker's jailer: a cgroup with the id below one with the name of the program, which may have
/// a version (docs/jailer.md).
fn jailed<'a>(part: &'a str, above: &str) -> Option<&'a str> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let program = above.strip_prefix("firecracker")?;
    let version = program.strip_prefix("-v").or_else(|| program.strip_prefix("_v"));
    let has_version =
        version.is_some_and(|version| version.starts_with(|c: char| c.is_ascii_digit()));
    let is_program = program.is_empty() || has_version;
    (is_program && part.len() <= 64 && part.bytes().all(allowed)).then_some(part)
}

/// Kata Containers: `kata_ID` of the sandbox.
fn kata(part: &str) -> Option<&str> {
    part.strip_prefix("kata_").filter(|id| is_id(id))
}

/// The virtual machine of a pod of `KubeVirt`, from its name: `virt-launcher-MACHINE-xxxxx`. The
/// suffix is that of every generated name (5 characters, apiserver's `SimpleNameGenerator`), which
/// also cuts what is before it.
pub(super) fn launched(pod: &str) -> Option<&str> {
    let name = pod.rsplit_once('/').map_or(pod, |(_, name)| name);
    let rest = name.strip_prefix("virt-launcher-")?;
    let (name, suffix) = rest.split_at_checked(rest.len().checked_sub(5)?)?;
    let is_suffix = suffix.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let name = name.strip_suffix('-').unwrap_or(name);
    (is_suffix && !name.is_empty()).then_some(name)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Reverts the `\x2d` escapes of unit names (systemd.unit(5)) for printable ASCII. A machine's name
/// has no path separator (hostname(7)), so an escaped one is kept.
fn unescape(name: &str) -> Cow<'_, str> {
    if !name.contains("\\x") {
        return Cow::Borrowed(name);
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some((before, after)) = rest.split_once("\\x") {
        out.push_str(before);
        let byte = after.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        if let Some(byte) = byte.filter(|byte| byte.is_ascii_graphic() && *byte != b'/') {
            out.push(char::from(byte));
            rest = &after[2..];
        } else {
            out.push_str("\\x");
            rest = after;
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_found_in_each_form_of_its_machine_name() {
        for (machine, name) in [
            ("qemu-1-web", Some("web")),
            ("qemu-12-web-01.example", Some("web-01.example")),
            ("qemu-3-7-8", Some("7-8")),
            ("qemu-alice-2-web", Some("web")),
            ("qemu-mary-ann-2-web-3", Some("web-3")),
            ("qemu-embed-01234567-4-web", Some("web")),
            ("lxc-4242-shop", Some("shop")),
            ("ch-1-shop", Some("shop")),
            ("qemu-1-", None),
            ("qemu-web", None),
            ("web-1-x", None),
        ] {
            assert_eq!(domain(machine), name, "{machine}");
        }
    }

    #[test]
    fn a_pod_of_kubevirt_has_the_name_of_its_machine() {
        for (pod, name) in [
            ("shop/virt-launcher-db-x2k9p", Some("db")),
            ("virt-launcher-db-1-abcde", Some("db-1")),
            ("shop/virt-launcher-cut-at-58-charactersbcdef", Some("cut-at-58-characters")),
            ("shop/virt-launcher--abcde", None),
            ("shop/virt-launcher-é", None),
            ("shop/virt-launcher-db-ABCDE", None),
            ("shop/web-0", None),
        ] {
            assert_eq!(launched(pod), name, "{pod}");
        }
    }
}
