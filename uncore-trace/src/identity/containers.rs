//! Finds the container, pod and job in a cgroup path, from the form of the path alone.
//!
//! The forms are those of runc and crun for Docker, containerd, CRI-O, podman and Kubernetes, with
//! the cgroupfs and the systemd driver, and those of LXC. [`super::machines`] has those of virtual
//! machines, and [`super::jobs`] those of batch systems.
//!
//! Who made the path decides whether its names are believed: see [`super::trust`].
//!
//! Guarantee: the cgroups below a container do not change the answer. A container may create
//! cgroups with any name in its own subtree, so the outermost container of a path counts.
//! The same is true of a step of a job.

use std::borrow::Cow;

use super::jobs;
use super::machines::parse_machine;

/// Number of characters of an id that are shown, as by `docker ps`; the path has all 64.
const SHORT: usize = 12;

/// The container, pod and job that contain a cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inside<'a> {
    /// The container or virtual machine: the 64 hexadecimal digits of its id, or its name if it has
    /// no such id.
    pub container: Option<Cow<'a, str>>,
    /// The pod: the uid as Kubernetes writes it (with `-`), or the id of a podman pod.
    pub pod: Option<Cow<'a, str>>,
    /// The job and its step: `123.0`, or `123` outside of a step.
    pub job: Option<Cow<'a, str>>,
}

impl<'a> Inside<'a> {
    /// Parses a path from the root of the hierarchy.
    pub fn parse(path: &'a str) -> Self {
        let mut inside = Self::default();
        let mut kubernetes = false;
        let mut above = "";
        let mut job = jobs::JobFinder::default();
        for component in path.split('/').filter(|component| !component.is_empty()) {
            if job.find_job(component, above, &mut inside.job) {
                above = component;
                continue;
            }
            // A systemd path given to the cgroupfs driver: `PARENT.slice:cri-containerd:ID`.
            for segment in component.split(':') {
                if inside.pod.is_none() {
                    inside.pod = parse_pod(segment, above, kubernetes);
                    if inside.pod.is_some() {
                        continue;
                    }
                }
                inside.container = parse_container(segment, above);
                if inside.container.is_some() {
                    return inside;
                }
            }
            kubernetes |= component == "kubepods";
            above = component;
        }
        inside
    }
}

/// `kubepods-burstable-podUID.slice` (systemd, `-` of the uid as `_`), `podUID` below `kubepods`
/// (cgroupfs), `machine-libpod_pod_ID.slice` and `libpod_parent/ID` (podman).
fn parse_pod<'a>(segment: &'a str, above: &str, kubernetes: bool) -> Option<Cow<'a, str>> {
    if let Some(slice) = segment.strip_suffix(".slice") {
        if let Some((_, id)) = slice.rsplit_once("libpod_pod_") {
            return is_id(id).then_some(Cow::Borrowed(id));
        }
        let (_, below) = slice.split_once("kubepods")?;
        return parse_uid(below.rsplit_once("-pod")?.1);
    }
    if above == "libpod_parent" && is_id(segment) {
        return Some(Cow::Borrowed(segment));
    }
    parse_uid(segment.strip_prefix("pod").filter(|_| kubernetes)?)
}

/// A uid: 8-4-4-4-12 hexadecimal digits, or 32 digits for the hash of a static pod.
fn parse_uid(text: &str) -> Option<Cow<'_, str>> {
    let bytes = text.as_bytes();
    let dashed = bytes.len() == 36
        && bytes.iter().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => matches!(byte, b'-' | b'_'),
            _ => is_hex(*byte),
        });
    if dashed && text.contains('_') {
        return Some(Cow::Owned(text.replace('_', "-")));
    }
    (dashed || bytes.len() == 32 && bytes.iter().all(|byte| is_hex(*byte)))
        .then_some(Cow::Borrowed(text))
}

fn parse_container<'a>(segment: &'a str, above: &str) -> Option<Cow<'a, str>> {
    let name = segment.strip_suffix(".scope").unwrap_or(segment);
    if is_id(name) {
        return Some(Cow::Borrowed(name));
    }
    if let Some((runtime, id)) = name.rsplit_once('-')
        && is_id(id)
    {
        // conmon monitors a container from outside.
        return (!runtime.ends_with("conmon")).then_some(Cow::Borrowed(id));
    }
    let lxc = segment.strip_prefix("lxc.payload.");
    let lxc = lxc.or_else(|| matches!(above, "lxc" | "lxc.payload").then_some(segment));
    if let Some(name) = lxc.filter(|name| !name.is_empty()) {
        return Some(Cow::Borrowed(name));
    }
    parse_machine(segment, above)
}

/// Whether it has the form of an id of Docker, containerd's CRI, CRI-O or podman: 64 digits.
pub fn is_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(is_hex)
}

const fn is_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// Whether it has the form of the uid of a pod of Kubernetes, as [`Inside::pod`] has it.
pub fn is_uid(text: &str) -> bool {
    parse_uid(text).is_some()
}

/// `name@id`, or the id alone. Ids of runtimes are cut to the 12 digits that users see.
pub fn label_with_id(name: Option<&str>, id: &str) -> String {
    let id = if is_id(id) { &id[..SHORT] } else { id };
    name.map_or_else(|| id.to_owned(), |name| format!("{name}@{id}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "3f4e5d6c7b8a90123f4e5d6c7b8a90123f4e5d6c7b8a90123f4e5d6c7b8a9012";
    const POD: &str = "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d";
    const POD_: &str = "9b1deb4d_3b7d_4bad_9bdd_2b0d7b3dcb6d";
    const HASH: &str = "d41d8cd98f00b204e9800998ecf8427e";
    const C: Option<&str> = Some(ID);
    const P: Option<&str> = Some(POD);

    /// `ID`, `POD` and so on stand for the constants with these names.
    const SHAPES: &[(&str, Option<&str>, Option<&str>)] = &[
        ("/", None, None),
        ("/init.scope", None, None),
        ("/system.slice/docker.service", None, None),
        ("/system.slice/ssh.service", None, None),
        ("/user.slice/user-1000.slice/session-3.scope", None, None),
        // Docker: systemd driver, cgroupfs driver, rootless, with a cgroup of its own inside.
        ("/system.slice/docker-ID.scope", C, None),
        ("/docker/ID", C, None),
        ("/docker/ID/init.scope", C, None),
        ("/user.slice/user-1000.slice/user@1000.service/user.slice/docker-ID.scope", C, None),
        ("/docker/buildkit/ID", C, None),
        // containerd and CRI-O below Kubernetes: guaranteed, burstable and best effort.
        ("/kubepods.slice/kubepods-podPOD_.slice/cri-containerd-ID.scope", C, P),
        (
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podPOD_.slice/\
             cri-containerd-ID.scope",
            C,
            P,
        ),
        (
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podPOD_.slice/crio-ID.\
             scope",
            C,
            P,
        ),
        (
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podPOD_.slice/crio-ID.\
             scope/container",
            C,
            P,
        ),
        (
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podPOD_.slice/\
             crio-conmon-ID.scope",
            None,
            P,
        ),
        ("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podPOD_.slice", None, P),
        (
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podHASH.slice/docker-ID.\
             scope",
            C,
            Some(HASH),
        ),
        ("/kubepods/podPOD/ID", C, P),
        ("/kubepods/burstable/podPOD/ID", C, P),
        ("/kubepods/besteffort/podPOD", None, P),
        ("/kubepods/burstable/podHASH/ID", C, Some(HASH)),
        ("/kubepods/burstable/podPOD/crio-ID", C, P),
        (
            "/system.slice/containerd.service/kubepods-burstable-podPOD_.slice:cri-containerd:ID",
            C,
            P,
        ),
        (
            "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podPOD_.slice/\
             cri-containerd-ID.scope",
            C,
            P,
        ),
        // The node is itself a container: cgroups that it creates inside do not count.
        ("/docker/ID/kubelet/kubepods/podPOD/HASH", C, None),
        (
            "/system.slice/docker-ID.scope/system.slice/\
             docker-0000000000000000000000000000000000000000000000000000000000000000.scope",
            C,
            None,
        ),
        // podman, nerdctl and ECS.
        ("/machine.slice/libpod-ID.scope", C, None),
        ("/machine.slice/libpod-ID.scope/container", C, None),
        ("/machine.slice/libpod-conmon-ID.scope", None, None),
        ("/machine.slice/machine-libpod_pod_ID.slice/libpod-ID.scope", C, C),
        ("/libpod_parent/libpod-ID", C, None),
        ("/libpod_parent/ID/libpod-ID", C, C),
        ("/system.slice/web.service/libpod-payload-ID", C, None),
        ("/system.slice/nerdctl-ID.scope", C, None),
        ("/default/ID", C, None),
        ("/ecs/HASH/ID", C, None),
        // LXC, its old layout, Proxmox; systemd-nspawn and machines.
        ("/lxc.payload.web/system.slice/ssh.service", Some("web"), None),
        ("/lxc/101/ns/init.scope", Some("101"), None),
        ("/lxc.payload/web", Some("web"), None),
        ("/lxc.monitor.web", None, None),
        ("/machine.slice/systemd-nspawn@web.service/payload", Some("web"), None),
        ("/machine.slice/machine-my\\x2dweb.scope", Some("my-web"), None),
        ("/machine.slice/systemd-nspawn@a\\x2f\\x2eb.service", Some("a\\x2f.b"), None),
        ("/machine.slice/systemd-vmspawn@web.service", Some("web"), None),
        // Virtual machines: libvirt with systemd, also in a slice or a session of its own, and
        // without systemd; Proxmox, Firecracker, Kata.
        ("/machine.slice/machine-qemu\\x2d1\\x2dguest.scope", Some("guest"), None),
        (
            "/machine.slice/machine-qemu\\x2d12\\x2dweb\\x2d01.scope/libvirt/vcpu0",
            Some("web-01"),
            None,
        ),
        (
            "/machine.slice/machine-prod.slice/machine-qemu\\x2d1\\x2dinstance\\x2d0000001a.scope/\
             libvirt",
            Some("instance-0000001a"),
            None,
        ),
        ("/prod.slice/machine-qemu\\x2d1\\x2dguest.scope/libvirt/emulator", Some("guest"), None),
        (
            "/user.slice/user-1000.slice/user@1000.service/machine.slice/machine-qemu\\x2dann\\\
             x2d1\\x2dvm.scope",
            Some("vm"),
            None,
        ),
        ("/machine.slice/machine-lxc\\x2d4242\\x2dshop.scope", Some("shop"), None),
        ("/machine.slice/machine-qemubox.scope", Some("qemubox"), None),
        ("/machine.slice/machine-qemu\\x2d1\\x2da\\x1b\\x5b2J.scope", Some("a\\x1b[2J"), None),
        ("/machine/qemu-1-guest.libvirt-qemu/vcpu0", Some("guest"), None),
        ("/machine/prod.partition/qemu-1-guest.libvirt-qemu", Some("guest"), None),
        ("/machine/guest.libvirt-lxc", Some("guest"), None),
        ("/qemu.slice/100.scope", Some("100"), None),
        (
            "/firecracker/551e7604-e35c-42b3-b825-416853441234",
            { Some("551e7604-e35c-42b3-b825-416853441234") },
            None,
        ),
        ("/firecracker-v1.13.1-x86_64/vm-7", Some("vm-7"), None),
        ("/kubepods/burstable/podPOD/kata_ID", C, P),
        ("/system.slice/libvirtd.service", None, None),
        ("/system.slice/machine-web.scope", None, None),
        ("/qemu.slice/web.scope", None, None),
        ("/firecrackers/x", None, None),
        ("/system.slice/firecracker-containerd.service/init", None, None),
        ("/machine/guest.libvirt-x", None, None),
        // These look similar, but are no containers.
        ("/kubepods/burstable/podPOD0/x", None, None),
        ("/podPOD/x", None, None),
        ("/kubepods.slice/kubepods-podPOD.scope", None, None),
        ("/docker/IDa", None, None),
        ("/system.slice/docker-ID.slice", None, None),
    ];

    fn spelled(text: &str) -> String {
        let text = text.replace("POD_", POD_).replace("podPOD", &format!("pod{POD}"));
        text.replace("HASH", HASH).replace("ID", ID)
    }

    #[test]
    fn real_paths_are_read() {
        for (shape, container, pod) in SHAPES {
            let path = spelled(shape);
            let inside = Inside::parse(&path);
            assert_eq!(inside.container.as_deref(), *container, "{shape}");
            assert_eq!(inside.pod.as_deref(), *pod, "{shape}");
        }
    }

    #[test]
    fn ids_are_shown_as_people_see_them() {
        assert_eq!(label_with_id(Some("web"), ID), "web@3f4e5d6c7b8a");
        assert_eq!(label_with_id(None, ID), "3f4e5d6c7b8a");
        assert_eq!(label_with_id(Some("shop/web-0"), POD), format!("shop/web-0@{POD}"));
    }

    /// Pieces that the rules look for, in any order, mixed with others.
    fn path() -> impl Strategy<Value = String> {
        let pieces: Vec<String> = [
            "/",
            "-",
            ":",
            "kubepods",
            "pod",
            "POD_",
            "podPOD",
            "HASH",
            "ID",
            ".slice",
            ".scope",
            "lxc",
            "libpod_pod_",
            "libpod_parent",
            "machine-",
            "machine.slice",
            "\\x2d",
            "\\x",
            "é",
            "conmon",
            "qemu-1-",
            "qemu.slice",
            ".libvirt-qemu",
            "firecracker",
            "slurmstepd.scope",
            "uid_0",
            "job_7",
            "step_0",
        ]
        .map(spelled)
        .into();
        prop::collection::vec(prop_oneof![prop::sample::select(pieces), ".{0,4}"], 0..12)
            .prop_map(|pieces| format!("/{}", pieces.concat()))
    }

    proptest! {
        #[test]
        fn no_cgroup_path_panics(path in path()) {
            let inside = Inside::parse(&path);
            for id in inside.container.iter().chain(&inside.pod).chain(&inside.job) {
                prop_assert!(!id.is_empty());
                label_with_id(None, id);
            }
        }

        #[test]
        fn cgroups_that_a_container_makes_do_not_change_its_identity(above in path(), below in path()) {
            let path = format!("{above}/docker-{ID}.scope");
            let more = format!("slurmstepd.scope/job_9/kubepods/pod{POD}/{}", "0".repeat(64));
            let whole = format!("{path}{below}/{more}");
            let (outer, inner) = (Inside::parse(&path), Inside::parse(&whole));
            prop_assert!(outer.container.is_some());
            prop_assert_eq!(outer, inner);
        }
    }
}
