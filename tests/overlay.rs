//! PMU families from `--catalog` and the user's directory: they replace the embedded ones, a
//! recording names them, and an invalid catalog is refused. With the real binary.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs;
use std::path::{Path, PathBuf};

use uncore_trace::schema::{fabric, metadata};
use uncore_trace::tables::reader::Recording;

use crate::command::{Answer, Place};
use crate::harness::has_root;

/// A directory `name` here with the family of Grace's PCIe ports, without the tenth port.
fn nine_ports(place: &Place, name: &str) -> PathBuf {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("catalog/nvidia_pcie.toml");
    let text = fs::read_to_string(file).unwrap();
    assert!(text.contains("root_port=0x3ff"), "{text}");
    let dir = place.path(name);
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("ports.toml"), text.replace("root_port=0x3ff", "root_port=0x1ff")).unwrap();
    dir
}

#[test]
fn a_family_from_outside_replaces_the_embedded_one() {
    let place = Place::new();
    let root = place.machine("grace-2s");
    let plan = ["record", "--dry-run", "--root", &root, "-p", "pcie"];
    assert!(place.run(plan).ok().contains("root_port=0x3ff"));
    nine_ports(&place, "given");
    let given = place.run([&plan[..], &["--catalog", "given"]].concat()).ok();
    assert!(given.contains("root_port=0x1ff") && !given.contains("root_port=0x3ff"), "{given}");

    let user = nine_ports(&place, "config/uncore-trace/catalog");
    let with_user = |args: &[&str]| {
        let config = place.path("config");
        Answer::of(place.tool(args).env("XDG_CONFIG_HOME", config).output().unwrap()).ok()
    };
    assert_eq!(with_user(&plan), given);
    let text = fs::read_to_string(user.join("ports.toml")).unwrap();
    let about = text.replace("NVIDIA Grace PCIe root ports", "ports as the user knows them");
    fs::write(user.join("ports.toml"), about).unwrap();
    let list = ["list", "pmus", "--root", &root];
    assert!(with_user(&list).contains("ports as the user knows them"));
    let list = with_user(&[&list[..], &["--catalog", "given"]].concat());
    assert!(list.contains("NVIDIA Grace PCIe root ports"), "{list}");
}

#[test]
fn a_recording_names_the_families_from_outside() {
    if !has_root("the catalog in a recording's metadata") {
        return;
    }
    let place = Place::new();
    nine_ports(&place, "given");
    for (options, files) in [("", "[]"), ("--catalog given", r#"["given/ports.toml"]"#)] {
        let typed = format!("record -p host -o x.parquet --force {options} -- true");
        place.typed(&typed).recorded();
        let recording = Recording::open(&place.path("x.parquet")).unwrap();
        let table = recording.open_table(&fabric::TABLE).unwrap();
        assert_eq!(table.metadata_pairs()[metadata::CATALOG], files);
    }
}

#[test]
fn a_catalog_that_cannot_be_used_is_refused_with_its_name() {
    let place = Place::new();
    let root = place.machine("grace-2s");
    let refuses = |words: &[&str]| {
        for verb in ["record --dry-run -p pcie", "list"] {
            let args = verb.split(' ').chain(["--root", &root, "--catalog", "given"]);
            let line = place.refuses(args);
            assert!(words.iter().all(|word| line.contains(word)), "{verb}: {line}");
        }
    };
    refuses(&["the catalog given", "o such file or directory"]);
    fs::create_dir(place.path("given")).unwrap();
    refuses(&["the catalog given holds no .toml file"]);
    let file = nine_ports(&place, "given").join("ports.toml");
    let sound = fs::read_to_string(&file).unwrap();
    fs::write(&file, sound.replace("group = \"pcie\"", "group = \"pci\"")).unwrap();
    let before = sound.lines().take_while(|line| !line.starts_with("group"));
    let line = format!("given/ports.toml, line {}: ", before.count() + 1);
    refuses(&[line.as_str(), "pci", "pcie"]);
    fs::write(&file, "family = \"x\"\nabout\n").unwrap();
    refuses(&["given/ports.toml, line 2: ", "key with no value"]);

    fs::write(&file, sound.replace("root_port=0x1ff", "root_port=0x7ff")).unwrap();
    let line =
        place.refuses(["record", "--dry-run", "-p", "pcie", "--root", &root, "--catalog", "given"]);
    assert!(line.contains("nvidia_pcie") && line.contains("root_port"), "{line}");
}
