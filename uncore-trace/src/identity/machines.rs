//! Finds the virtual machine in a component of a cgroup path.
//!
//! The forms are those of libvirt, systemd-machined, Proxmox VE, Firecracker's jailer and Kata
//! Containers. A virtual machine is named as a container is: it is what runs a tenant's programs.

use std::borrow::Cow;

use super::containers::is_id;

/// Drivers of libvirt that put their machines into cgroups.
const DRIVERS: [&str; 3] = ["qemu", "lxc", "ch"];

/// The name of the machine whose cgroup has this component below `above`.
pub(super) fn parse_machine<'a>(component: &'a str, above: &str) -> Option<Cow<'a, str>> {
    let name = by_systemd(component, above).or_else(|| {
        let plain = by_libvirt(component)
            .or_else(|| jailed_machine(component, above))
            .or_else(|| kata_sandbox(component));
        plain.map(Cow::Borrowed)
    });
    name.filter(|name| !name.is_empty())
}

/// The units of systemd-machined, systemd-nspawn and systemd-vmspawn, whose names are escaped, and
/// the scopes of Proxmox VE: `qemu.slice/VMID.scope`.
fn by_systemd<'a>(component: &'a str, above: &str) -> Option<Cow<'a, str>> {
    if let Some(service) = component.strip_suffix(".service") {
        let name = service.strip_prefix("systemd-nspawn@");
        return name.or_else(|| service.strip_prefix("systemd-vmspawn@")).map(unescape_unit);
    }
    let scope = component.strip_suffix(".scope")?;
    let slice = above.strip_suffix(".slice")?;
    if slice == "qemu" && is_number(scope) {
        return Some(Cow::Borrowed(scope));
    }
    let name = unescape_unit(scope.strip_prefix("machine-")?);
    let of_libvirt = libvirt_domain(&name).map(ToOwned::to_owned);
    // A domain of libvirt may be in a slice of its own (`<resource><partition>`).
    let registered = slice == "machine" || slice.starts_with("machine-");
    of_libvirt.map(Cow::Owned).or_else(|| registered.then_some(name))
}

/// libvirt without systemd: `MACHINE.libvirt-DRIVER` (`virCgroupNewDomainPartition`,
/// `src/util/vircgroup.c`).
fn by_libvirt(component: &str) -> Option<&str> {
    let (name, driver) = component.rsplit_once(".libvirt-")?;
    DRIVERS.contains(&driver).then(|| libvirt_domain(name).unwrap_or(name))
}

/// The domain in a machine name of libvirt: `DRIVER-ID-DOMAIN`, with the user before the id in a
/// session, and `embed-HASH` there for an embedded driver (`virDomainDriverGenerateMachineName`,
/// `src/hypervisor/domain_driver.c`). libvirt leaves characters out that a host name has not, and
/// cuts the whole at 64.
fn libvirt_domain(machine: &str) -> Option<&str> {
    let (driver, mut id_and_domain) = machine.split_once('-')?;
    if !DRIVERS.contains(&driver) {
        return None;
    }
    if let Some(embedded) = id_and_domain.strip_prefix("embed-") {
        id_and_domain = embedded.split_once('-')?.1;
    }
    loop {
        let (id, name) = id_and_domain.split_once('-')?;
        if is_number(id) {
            return (!name.is_empty()).then_some(name);
        }
        id_and_domain = name;
    }
}

/// Firecracker's jailer: a cgroup with the id below one with the name of the program, which may
/// have a version (docs/jailer.md).
fn jailed_machine<'a>(component: &'a str, above: &str) -> Option<&'a str> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let program = above.strip_prefix("firecracker")?;
    let version = program.strip_prefix("-v").or_else(|| program.strip_prefix("_v"));
    let has_version =
        version.is_some_and(|version| version.starts_with(|c: char| c.is_ascii_digit()));
    let is_program = program.is_empty() || has_version;
    (is_program && component.len() <= 64 && component.bytes().all(allowed)).then_some(component)
}

/// Kata Containers: `kata_ID` of the sandbox.
fn kata_sandbox(component: &str) -> Option<&str> {
    component.strip_prefix("kata_").filter(|id| is_id(id))
}

/// The virtual machine of a pod of `KubeVirt`, from its name: `virt-launcher-MACHINE-xxxxx`. The
/// suffix is that of every generated name (5 characters, apiserver's `SimpleNameGenerator`), which
/// also cuts what is before it.
pub(super) fn launched_machine(pod: &str) -> Option<&str> {
    let name = pod.rsplit_once('/').map_or(pod, |(_, name)| name);
    let machine_and_suffix = name.strip_prefix("virt-launcher-")?;
    let (name, suffix) =
        machine_and_suffix.split_at_checked(machine_and_suffix.len().checked_sub(5)?)?;
    let is_suffix = suffix.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let name = name.strip_suffix('-').unwrap_or(name);
    (is_suffix && !name.is_empty()).then_some(name)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Reverts the `\x2d` escapes of unit names (systemd.unit(5)) for printable ASCII. A machine's name
/// has no path separator (hostname(7)), so an escaped one is kept.
fn unescape_unit(name: &str) -> Cow<'_, str> {
    if !name.contains("\\x") {
        return Cow::Borrowed(name);
    }
    let mut unescaped = String::with_capacity(name.len());
    let mut escaped = name;
    while let Some((literal, code)) = escaped.split_once("\\x") {
        unescaped.push_str(literal);
        let byte = code.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        if let Some(byte) = byte.filter(|byte| byte.is_ascii_graphic() && *byte != b'/') {
            unescaped.push(char::from(byte));
            escaped = &code[2..];
        } else {
            unescaped.push_str("\\x");
            escaped = code;
        }
    }
    unescaped.push_str(escaped);
    Cow::Owned(unescaped)
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
            assert_eq!(libvirt_domain(machine), name, "{machine}");
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
            assert_eq!(launched_machine(pod), name, "{pod}");
        }
    }
}
