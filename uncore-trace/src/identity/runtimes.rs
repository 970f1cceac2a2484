//! Names of containers and pods, from files of the container runtimes and the kubelet.
//!
//! Guarantees: no daemon is asked. No file outside the given root is opened, whatever symbolic
//! links point to. Only regular files of at most [`LARGEST`] bytes are read, to which root alone
//! can write. If a file is missing, belongs to another user or has another form, the name stays
//! unknown.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, Mode, OFlags, ResolveFlags, open, openat2};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::trust::RootUser;

/// Size limit of a file in bytes. An OCI configuration has some 10 to 50 kB.
const LARGEST: u64 = 2 << 20;
/// Largest number of directory entries that are examined. The kubelet's default limit is 110 pods.
const MOST_ENTRIES: usize = 4096;
/// Longest name in bytes. Longer ones are not used; Kubernetes allows 253.
const LONGEST_NAME: usize = 256;

/// Directories of containerd with the bundles of running containers, by namespace.
const CONTAINERD: [&str; 2] = [
    "run/containerd/io.containerd.runtime.v2.task",
    "run/k3s/containerd/io.containerd.runtime.v2.task",
];
/// The namespace of Kubernetes there (`k8sContainerdNamespace`, containerd 2.1).
const KUBERNETES: &str = "k8s.io";
/// Directories of CRI-O and podman with their containers.
const STORAGE: [&str; 2] =
    ["var/lib/containers/storage/overlay-containers", "run/containers/storage/overlay-containers"];

/// Directory of Docker with its containers.
const DOCKER: &str = "var/lib/docker/containers";
/// Directory of the kubelet with the logs of pods.
const PODS: &str = "var/log/pods";

/// The names of a container, as far as known.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ContainerNames {
    /// The container's own name.
    pub container: Option<String>,
    /// `namespace/name` of its pod.
    pub pod: Option<String>,
}

/// The files below one root.
#[derive(Debug)]
pub struct Runtimes {
    root: PathBuf,
    owner: Option<RootUser>,
}

/// Docker's `config.v2.json` (`container.Container` in moby 28).
#[derive(Deserialize)]
struct Docker {
    #[serde(rename = "Name", default)]
    name: String,
    #[serde(rename = "Config")]
    config: Option<DockerConfig>,
}

#[derive(Deserialize)]
struct DockerConfig {
    #[serde(rename = "Labels", default)]
    labels: Option<BTreeMap<String, String>>,
}

/// `config.json` of an OCI bundle.
#[derive(Deserialize)]
struct Bundle {
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

/// An entry of `containers.json` of containers/storage.
#[derive(Deserialize)]
struct StoredContainer {
    id: String,
    #[serde(default)]
    names: Option<Vec<String>>,
}

impl Runtimes {
    /// Files below `root`.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), owner: RootUser::of_dir(root) }
    }

    /// The directories that are read, below `root`.
    pub fn runtime_trees(root: &Path) -> impl Iterator<Item = PathBuf> {
        CONTAINERD.into_iter().chain(STORAGE).chain([DOCKER, PODS]).map(|tree| root.join(tree))
    }

    /// The names of a container, from the files of the runtimes. `id` must be a single path
    /// component. The names of Kubernetes count only for a container that is in a pod: elsewhere
    /// who made an image may have put them into its labels.
    pub fn container_names(&self, id: &str, in_pod: bool) -> ContainerNames {
        if id.contains(['/', '\0']) || id.starts_with('.') {
            return ContainerNames::default();
        }
        let named = self.docker_names(id, in_pod).or_else(|| self.bundle_names(id, in_pod));
        named.or_else(|| self.stored_names(id)).unwrap_or_default()
    }

    /// `namespace/name` of a pod, from the kubelet's `/var/log/pods/NAMESPACE_NAME_UID`.
    pub fn pod_name(&self, uid: &str) -> Option<String> {
        let entries = self.list_names(PODS);
        let name = entries.iter().find_map(|name| name.strip_suffix(uid)?.strip_suffix('_'))?;
        let (namespace, name) = name.split_once('_')?;
        sane_name(format!("{namespace}/{name}"))
    }

    fn docker_names(&self, id: &str, in_pod: bool) -> Option<ContainerNames> {
        let docker: Docker = self.read_json(&format!("{DOCKER}/{id}/config.v2.json"))?;
        let labels = docker.config.and_then(|config| config.labels).unwrap_or_default();
        let mut named = if in_pod { names_by_labels(&labels) } else { ContainerNames::default() };
        if named.container.is_none() {
            named.container = sane_name(docker.name.trim_start_matches('/').to_owned());
        }
        Some(named)
    }

    fn bundle_names(&self, id: &str, in_pod: bool) -> Option<ContainerNames> {
        let containerd = CONTAINERD.iter().flat_map(|dir| {
            self.list_names(dir).into_iter().map(move |namespace| {
                (format!("{dir}/{namespace}/{id}/config.json"), in_pod || namespace == KUBERNETES)
            })
        });
        let storage =
            STORAGE.iter().map(|dir| (format!("{dir}/{id}/userdata/config.json"), in_pod));
        containerd.chain(storage).find_map(|(path, in_pod)| {
            let bundle: Bundle = self.read_json(&path)?;
            let annotations = bundle.annotations.unwrap_or_default();
            let named =
                if in_pod { names_by_labels(&annotations) } else { ContainerNames::default() };
            let by_nerdctl = || annotations.get("nerdctl/name").cloned().and_then(sane_name);
            let named = ContainerNames { container: named.container.or_else(by_nerdctl), ..named };
            (named != ContainerNames::default()).then_some(named)
        })
    }

    fn stored_names(&self, id: &str) -> Option<ContainerNames> {
        let files = ["containers.json", "volatile-containers.json"];
        let paths = STORAGE.iter().flat_map(|dir| files.map(|file| format!("{dir}/{file}")));
        paths.into_iter().find_map(|path| {
            let stored: Vec<StoredContainer> = self.read_json(&path)?;
            let container_entry = stored.into_iter().find(|stored| stored.id == id)?;
            let container = container_entry.names?.into_iter().next().and_then(sane_name);
            Some(ContainerNames { container, pod: None })
        })
    }

    fn read_json<T: DeserializeOwned>(&self, path: &str) -> Option<T> {
        serde_json::from_slice(&self.read(path)?).ok()
    }

    /// Opens a file or directory as if `root` were the root of the file system.
    fn open(&self, path: &str, flags: OFlags) -> Option<File> {
        let root =
            open(&self.root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        // A FIFO in place of a file must not block the recording.
        let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        openat2(root.ok()?, path, flags, Mode::empty(), inside).ok().map(File::from)
    }

    fn read(&self, path: &str) -> Option<Vec<u8>> {
        self.owner?.read_file(self.open(path, OFlags::empty())?, LARGEST)
    }

    /// Sorted names of the entries of a directory; empty if it cannot be read, or if others than
    /// root may write to it.
    fn list_names(&self, path: &str) -> Vec<String> {
        let is_roots = |dir: &File| {
            let metadata = dir.metadata().ok();
            self.owner.zip(metadata).is_some_and(|(root, metadata)| root.alone_writes(&metadata))
        };
        let dir = self.open(path, OFlags::DIRECTORY).filter(is_roots);
        let dir = dir.and_then(|dir| Dir::new(dir).ok());
        let entries = dir.into_iter().flatten().flatten().take(MOST_ENTRIES);
        let names = entries.filter_map(|entry| Some(entry.file_name().to_str().ok()?.to_owned()));
        let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
        names.sort_unstable();
        names
    }
}

/// The names from the labels of the kubelet (`pkg/kubelet/types/labels.go`, Kubernetes 1.34, with
/// Docker and CRI-O), or the annotations of containerd's CRI plugin (`pkg/cri/annotations`,
/// containerd 2.1).
fn names_by_labels(labels: &BTreeMap<String, String>) -> ContainerNames {
    let first_label =
        |keys: &[&str]| keys.iter().find_map(|key| sane_name(labels.get(*key)?.clone()));
    let container =
        first_label(&["io.kubernetes.container.name", "io.kubernetes.cri.container-name"]);
    let pod = first_label(&["io.kubernetes.pod.name", "io.kubernetes.cri.sandbox-name"]);
    let namespace =
        first_label(&["io.kubernetes.pod.namespace", "io.kubernetes.cri.sandbox-namespace"]);
    let pod = namespace.zip(pod).map(|(namespace, pod)| format!("{namespace}/{pod}"));
    ContainerNames { container, pod }
}

/// The name, if it is not empty and not too long.
fn sane_name(name: String) -> Option<String> {
    (!name.is_empty() && name.len() <= LONGEST_NAME).then_some(name)
}

#[cfg(test)]
mod tests;
