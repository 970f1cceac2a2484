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
                kubelet.trim_start_matches(r#"{"annotations":"#).trim_end_matches('}').to_owned()
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
        assert_eq!(runtimes.container_names(ID, true), named("app", Some("shop/web-0")), "{path}");
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
        assert_eq!(Runtimes::new(root.path()).container_names(ID, true), ContainerNames::default());
    }
    let root = root("x", "");
    let path = root.path().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
    assert_eq!(Runtimes::new(root.path()).container_names(ID, true), ContainerNames::default());
}
