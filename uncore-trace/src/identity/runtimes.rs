//! Names of containers and pods, from files of the container runtimes and the kubelet.
//!
//! Guarantees: no daemon is asked. No file outside the given root is opened, whatever symbolic
//! links point to. Only regular files of at most [`LARGEST`] bytes are read, to which root alone
//! can write. If a file is missing, belongs to another user or has another form, the name stays
//! unknown.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::Read as _;
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
        let trees = CONTAINERD.into_iter().chain(STORAGE).chain([DOCKER, PODS]);
        trees.map(|tree| root.join(tree))
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
            let namespaces = self.list_names(dir).into_iter();
            namespaces.map(move |namespace| {
                let path = format!("{dir}/{namespace}/{id}/config.json");
                (path, in_pod || namespace == KUBERNETES)
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
        let file = self.open(path, OFlags::empty())?;
        let metadata = file.metadata().ok()?;
        if !metadata.is_file() || metadata.len() > LARGEST || !self.is_roots(&metadata) {
            return None;
        }
        let mut bytes = Vec::new();
        file.take(LARGEST).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    fn is_roots(&self, metadata: &Metadata) -> bool {
        self.owner.is_some_and(|root| root.alone_writes(metadata))
    }

    /// Sorted names of the entries of a directory; empty if it cannot be read, or if others than
    /// root may write to it.
    fn list_names(&self, path: &str) -> Vec<String> {
        let is_roots = |dir: &File| dir.metadata().is_ok_and(|metadata| self.is_roots(&metadata));
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
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    const ID: &str = "3f4e5d6c7b8a90123f4e5d6c7b8a90123f4e5d6c7b8a90123f4e5d6c7b8a9012";
    const UID: &str = "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d";

    fn named(container: &str, pod: Option<&str>) -> ContainerNames {
        ContainerNames { container: Some(container.to_owned()), pod: pod.map(str::to_owned) }
    }

    /// A root with one file.
    fn root(path: &str, content: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        dir
    }

    #[test]
    fn each_runtimes_file_is_read() {
        let containerd = "run/containerd/io.containerd.runtime.v2.task";
        let storage = "var/lib/containers/storage/overlay-containers";
        let cri = r#"{"ociVersion":"1.1.0","annotations":{"io.kubernetes.cri.container-name":"app",
            "io.kubernetes.cri.sandbox-name":"web-0","io.kubernetes.cri.sandbox-namespace":"shop"}}"#;
        let kubelet = r#"{"annotations":{"io.kubernetes.container.name":"app",
            "io.kubernetes.pod.name":"web-0","io.kubernetes.pod.namespace":"shop"}}"#;
        let cases = [
            (
                format!("var/lib/docker/containers/{ID}/config.v2.json"),
                r#"{"Name":"/web","Config":{"Labels":null},"State":{}}"#.to_owned(),
                named("web", None),
            ),
            (
                format!("var/lib/docker/containers/{ID}/config.v2.json"),
                format!(
                    r#"{{"Name":"/k8s_app","Config":{{"Labels":{}}}}}"#,
                    kubelet
                        .trim_start_matches(r#"{"annotations":"#)
                        .trim_end_matches('}')
                        .to_owned()
                        + "}"
                ),
                named("app", Some("shop/web-0")),
            ),
            (
                format!("{containerd}/k8s.io/{ID}/config.json"),
                cri.to_owned(),
                named("app", Some("shop/web-0")),
            ),
            (
                format!("{containerd}/default/{ID}/config.json"),
                r#"{"annotations":{"nerdctl/name":"web"}}"#.to_owned(),
                named("web", None),
            ),
            (
                format!("{storage}/{ID}/userdata/config.json"),
                kubelet.to_owned(),
                named("app", Some("shop/web-0")),
            ),
            (
                format!("{storage}/containers.json"),
                format!(r#"[{{"id":"0"}},{{"id":"{ID}","names":["web"],"image":"x"}}]"#),
                named("web", None),
            ),
        ];
        for (path, content, wanted) in cases {
            let root = root(&path, &content);
            let runtimes = Runtimes::new(root.path());
            assert_eq!(runtimes.container_names(ID, true), wanted, "{path}");
            assert_eq!(
                runtimes.container_names(&ID.replace('3', "4"), true),
                ContainerNames::default()
            );
        }
    }

    #[test]
    fn the_labels_of_an_image_name_no_pod() {
        let labels = r#"{"io.kubernetes.container.name":"app","io.kubernetes.pod.name":"web-0",
            "io.kubernetes.pod.namespace":"shop"}"#;
        let docker = format!("var/lib/docker/containers/{ID}/config.v2.json");
        let storage = "var/lib/containers/storage/overlay-containers";
        let bundle = format!(r#"{{"annotations":{labels}}}"#);
        let of_docker = format!(r#"{{"Name":"/mine","Config":{{"Labels":{labels}}}}}"#);
        let tasks = "run/containerd/io.containerd.runtime.v2.task";
        let unknown = ContainerNames::default;
        for (path, content, wanted) in [
            (docker, &of_docker, named("mine", None)),
            (format!("{storage}/{ID}/userdata/config.json"), &bundle, unknown()),
            (format!("{tasks}/moby/{ID}/config.json"), &bundle, unknown()),
            (format!("{tasks}/k8s.io/{ID}/config.json"), &bundle, named("app", Some("shop/web-0"))),
        ] {
            let root = root(&path, content);
            let runtimes = Runtimes::new(root.path());
            assert_eq!(runtimes.container_names(ID, false), wanted, "{path}");
            assert_eq!(
                runtimes.container_names(ID, true),
                named("app", Some("shop/web-0")),
                "{path}"
            );
        }
    }

    #[test]
    fn files_that_others_may_write_name_nothing() {
        use std::os::unix::fs::PermissionsExt as _;
        let open_to_all = |path: &Path| {
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        };
        let file = format!("var/lib/docker/containers/{ID}/config.v2.json");
        let root = root(&file, r#"{"Name":"/web"}"#);
        let pods = root.path().join(PODS);
        fs::create_dir_all(pods.join(format!("shop_web-0_{UID}"))).unwrap();
        let runtimes = Runtimes::new(root.path());
        assert_eq!(runtimes.container_names(ID, false), named("web", None));
        assert!(runtimes.pod_name(UID).is_some());
        open_to_all(&root.path().join(file));
        open_to_all(&pods);
        assert_eq!(runtimes.container_names(ID, false), ContainerNames::default());
        assert_eq!(runtimes.pod_name(UID), None);
    }

    #[test]
    fn pods_are_named_by_the_kubelets_directories() {
        let root = root(&format!("var/log/pods/shop_web-0_{UID}/app/0.log"), "");
        let runtimes = Runtimes::new(root.path());
        assert_eq!(runtimes.pod_name(UID), Some("shop/web-0".to_owned()));
        assert_eq!(runtimes.pod_name("b0d7b3dcb6d"), None);
        assert_eq!(runtimes.pod_name(""), None);
    }

    #[test]
    fn nothing_outside_the_root_is_read() {
        let outside = root("config.v2.json", r#"{"Name":"/outside"}"#);
        let inside = root("var/lib/docker/containers/x/y", "");
        let link = |target: &Path| {
            let place = inside.path().join("var/lib/docker/containers").join(ID);
            fs::remove_file(&place).ok();
            symlink(target, place).unwrap();
        };
        let runtimes = Runtimes::new(inside.path());
        link(outside.path());
        assert_eq!(runtimes.container_names(ID, true), ContainerNames::default());
        // The same link, with its target inside the root.
        let copy = inside.path().join("moved");
        fs::create_dir(&copy).unwrap();
        fs::write(copy.join("config.v2.json"), r#"{"Name":"/inside"}"#).unwrap();
        link(Path::new("/moved"));
        assert_eq!(runtimes.container_names(ID, true), named("inside", None));
        link(Path::new("../../../../../../../../../../../moved"));
        assert_eq!(runtimes.container_names(ID, true), named("inside", None));
        assert_eq!(runtimes.container_names("../../../../moved", true), ContainerNames::default());
    }

    #[test]
    fn hostile_files_leave_the_name_unknown() {
        let path = format!("var/lib/docker/containers/{ID}/config.v2.json");
        let long = format!(r#"{{"Name":"/{}"}}"#, "x".repeat(300));
        let large = format!(r#"{{"Name":"/web","x":"{}"}}"#, "x".repeat(LARGEST as usize));
        let deep = "[".repeat(100_000);
        for content in ["", "{", r#"{"Name":7}"#, r#"{"Name":""}"#, &long, &large, &deep] {
            let root = root(&path, content);
            assert_eq!(
                Runtimes::new(root.path()).container_names(ID, true),
                ContainerNames::default()
            );
        }
        let root = root("x", "");
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, Mode::RUSR, 0)
            .unwrap();
        assert_eq!(Runtimes::new(root.path()).container_names(ID, true), ContainerNames::default());
    }
}
