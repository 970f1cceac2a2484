//! Which devices the kubelet has assigned to which containers, and the PCI functions that they are.
//!
//! An id means what its plugin says. So a function is known only where the id is its address and it
//! is there, where NVIDIA's driver has a GPU of this id, or where files of CDI name device files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use super::cdi;
use super::kubelet::{Container, Dynamic, ListedPods, Pod};
use crate::discover::nodes::{DeviceDrivers, gpu_ids};
use crate::discover::pci::{self, PciAddress};

/// Most assignments of a host: it has 110 pods, unless it was configured otherwise.
const MOST: usize = 1 << 14;

/// Longest name that is accepted.
const LONGEST: usize = 512;

/// Device plugins of NVIDIA that share a GPU put the number of the share behind its id
/// (`internal/rm/devices.go` of k8s-device-plugin 0.17, `AnnotatedID`).
const SHARE: &str = "::";

/// A device of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Assignment {
    /// `NAMESPACE/NAME` of the pod.
    pub pod: String,
    /// Name of the container.
    pub container: String,
    /// Resource of a device plugin, or driver of DRA.
    pub resource: String,
    /// Id of the device.
    pub device: String,
    /// `NAMESPACE/NAME` of DRA's claim.
    pub claim: Option<String>,
    /// Names of CDI, with commas.
    pub cdi: Option<String>,
    /// Its functions.
    pub functions: BTreeSet<PciAddress>,
    /// The functions on the root bus above them.
    pub ports: BTreeSet<PciAddress>,
}

/// What identifies devices on a machine.
#[derive(Debug)]
struct MachineDevices {
    root: PathBuf,
    drivers: DeviceDrivers,
    gpus: Vec<(String, PciAddress)>,
    cdi: cdi::CdiNames,
}

/// The directories that are read, below `root`, besides sysfs and procfs.
pub fn cdi_trees(root: &Path) -> impl Iterator<Item = PathBuf> {
    cdi::DIRS.into_iter().map(|dir| root.join(dir))
}

/// The assignments in an answer of the kubelet, without doubles. Sysfs and the rest are under
/// `root`.
///
/// # Errors
///
/// There are too many, or a name is too long.
pub fn list_assignments(listed: &ListedPods, root: &Path) -> Result<BTreeSet<Assignment>> {
    let devices = MachineDevices {
        root: root.to_owned(),
        drivers: DeviceDrivers::read(root),
        gpus: gpu_ids(root),
        cdi: cdi::CdiNames::read(root),
    };
    let mut unique = BTreeSet::new();
    for pod in &listed.pods {
        for container in &pod.containers {
            for assignment in devices.assignments_of(pod, container) {
                let Assignment { pod, container, resource, device, claim, cdi, .. } = &assignment;
                for text in [pod, container, resource, device].into_iter().chain(claim).chain(cdi) {
                    ensure!(text.len() <= LONGEST, "a name has {} bytes", text.len());
                }
                unique.insert(assignment);
                ensure!(unique.len() <= MOST, "more than {MOST} devices are assigned");
            }
        }
    }
    Ok(unique)
}

impl MachineDevices {
    fn assignments_of<'a>(
        &'a self,
        pod: &'a Pod,
        container: &'a Container,
    ) -> impl Iterator<Item = Assignment> + 'a {
        let empty = || Assignment {
            pod: format!("{}/{}", pod.namespace, pod.name),
            container: container.name.clone(),
            ..Assignment::default()
        };
        let plugins = container.devices.iter().flat_map(move |devices| {
            devices.ids.iter().map(move |id| {
                let (resource, device) = (devices.resource.clone(), id.clone());
                self.with_functions(
                    Assignment { resource, device, ..empty() },
                    &self.functions_by_id(id),
                )
            })
        });
        let claims = container.dynamic.iter().flat_map(move |dynamic| {
            self.claimed_devices(dynamic).map(move |(claimed, functions)| {
                let Assignment { pod, container, .. } = empty();
                self.with_functions(Assignment { pod, container, ..claimed }, &functions)
            })
        });
        plugins.chain(claims)
    }

    fn claimed_devices<'a>(
        &'a self,
        dynamic: &'a Dynamic,
    ) -> impl Iterator<Item = (Assignment, BTreeSet<PciAddress>)> + 'a {
        dynamic.resources.iter().map(move |claim_resource| {
            let names: Vec<&str> =
                claim_resource.cdi.iter().map(|device| device.name.as_str()).collect();
            let numbers = names.iter().flat_map(|name| self.cdi.device_numbers(name));
            let nodes = numbers.filter_map(|number| self.drivers.device_file(&self.root, number));
            let functions = nodes.flat_map(|node| node.functions).collect();
            let claimed = Assignment {
                resource: claim_resource.driver.clone(),
                device: format!("{}/{}", claim_resource.pool, claim_resource.device),
                claim: Some(format!("{}/{}", dynamic.namespace, dynamic.name)),
                cdi: (!names.is_empty()).then(|| names.join(",")),
                ..Assignment::default()
            };
            (claimed, functions)
        })
    }

    fn functions_by_id(&self, id: &str) -> BTreeSet<PciAddress> {
        if let Ok(address) = id.parse() {
            return [address].into();
        }
        let gpu = id.split_once(SHARE).map_or(id, |(gpu, _)| gpu);
        let matching = self.gpus.iter().filter(|(name, _)| name == gpu);
        matching.map(|(_, address)| *address).collect()
    }

    /// With those of the functions that the machine has.
    fn with_functions(
        &self,
        assignment: Assignment,
        functions: &BTreeSet<PciAddress>,
    ) -> Assignment {
        let port = |address: &PciAddress| Some((*address, pci::top(&self.root, *address)?));
        let (functions, ports) = functions.iter().filter_map(port).unzip();
        Assignment { functions, ports, ..assignment }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::super::kubelet::{CdiDevice, Claimed, PluginDevices};
    use super::*;

    const GPU: &str = "GPU-2f8e3c5a-0000-1111-2222-333344445555";

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        fs::create_dir_all(root.join("sys/bus/pci/devices")).unwrap();
        for address in ["0002:01:00.0", "0002:01:00.1", "0002:02:10.3"] {
            let target = format!("../../../devices/pci0002:00/0002:00:01.0/{address}");
            symlink(target, root.join("sys/bus/pci/devices").join(address)).unwrap();
        }
        let gpu = format!("Model: \t\t X\nGPU UUID: \t {GPU}\nDevice Minor: \t 0\n");
        write("proc/driver/nvidia/gpus/0002:01:00.0/information", &gpu);
        write("proc/devices", "Character devices:\n195 nvidia\n");
        write(
            "run/cdi/dra.json",
            r#"{"kind":"k8s.gpu.nvidia.com/device","devices":[{"name":"gpu-0","containerEdits":
            {"deviceNodes":[{"path":"/dev/nvidia0","major":195,"minor":0},{"path":"/dev/null","major":1,"minor":3}]}}]}"#,
        );
        dir
    }

    fn pod(containers: Vec<Container>) -> ListedPods {
        let (name, namespace) = ("train-0".to_owned(), "ml".to_owned());
        ListedPods { pods: vec![Pod { name, namespace, containers }] }
    }

    fn with_ids(resource: &str, ids: &[&str]) -> Container {
        let ids = ids.iter().map(|id| (*id).to_owned()).collect();
        let devices = vec![PluginDevices { resource: resource.to_owned(), ids }];
        Container { name: "main".to_owned(), devices, ..Container::default() }
    }

    #[test]
    fn a_device_has_a_function_only_where_something_says_it() {
        let dir = tree();
        let shared = format!("{GPU}::3");
        for (id, functions) in [
            (GPU, "0002:01:00.0"),
            (shared.as_str(), "0002:01:00.0"),
            ("0002:02:10.3", "0002:02:10.3"),
            // Not on this machine, of a part of a GPU, and of a plugin with names of its own.
            ("0002:02:10.4", ""),
            ("GPU-00000000-0000-0000-0000-000000000000", ""),
            ("MIG-2f8e3c5a-0000-1111-2222-333344445555", ""),
            ("card0-0", ""),
            ("0", ""),
            ("../../x\u{1b}[2J", ""),
            ("", ""),
        ] {
            let listed = pod(vec![with_ids("x.com/y", &[id])]);
            let assignments = list_assignments(&listed, dir.path()).unwrap();
            let first_assignment = assignments.first().unwrap();
            let texts: Vec<_> =
                first_assignment.functions.iter().map(ToString::to_string).collect();
            assert_eq!(texts.join(","), functions, "{id}");
            assert_eq!(first_assignment.ports.len(), first_assignment.functions.len(), "{id}");
            assert_eq!(
                (first_assignment.pod.as_str(), first_assignment.device.as_str()),
                ("ml/train-0", id)
            );
        }
    }

    #[test]
    fn a_claim_has_the_functions_of_its_names_of_cdi() {
        let dir = tree();
        let name = |name: &str| CdiDevice { name: name.to_owned() };
        let resources = vec![Claimed {
            cdi: vec![name("k8s.gpu.nvidia.com/device=gpu-0"), name("k8s.gpu.nvidia.com/device=x")],
            driver: "gpu.nvidia.com".to_owned(),
            pool: "node-1".to_owned(),
            device: "gpu-0".to_owned(),
        }];
        let dynamic = Dynamic { name: "one".to_owned(), namespace: "ml".to_owned(), resources };
        let container = Container { dynamic: vec![dynamic], ..with_ids("a", &[]) };
        let assignments = list_assignments(&pod(vec![container]), dir.path()).unwrap();
        let first_assignment = assignments.first().unwrap();
        assert_eq!(assignments.len(), 1);
        assert_eq!(first_assignment.functions, ["0002:01:00.0".parse().unwrap()].into());
        assert_eq!(first_assignment.ports, ["0002:00:01.0".parse().unwrap()].into());
        let cdi = "k8s.gpu.nvidia.com/device=gpu-0,k8s.gpu.nvidia.com/device=x";
        assert_eq!(
            (first_assignment.device.as_str(), first_assignment.cdi.as_deref()),
            ("node-1/gpu-0", Some(cdi))
        );
        assert_eq!(
            (first_assignment.resource.as_str(), first_assignment.claim.as_deref()),
            ("gpu.nvidia.com", Some("ml/one"))
        );
    }

    #[test]
    fn an_answer_is_bounded() {
        let dir = tree();
        let ids: Vec<String> = (0..=MOST).map(|id| id.to_string()).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let found = |ids: &[&str]| list_assignments(&pod(vec![with_ids("a", ids)]), dir.path());
        assert_eq!(found(&ids[..MOST]).unwrap().len(), MOST);
        assert!(found(&ids).unwrap_err().to_string().contains("more than"));
        assert!(found(&[&"x".repeat(LONGEST + 1)]).is_err());
        assert_eq!(found(&["a", "a"]).unwrap().len(), 1);
    }
}
