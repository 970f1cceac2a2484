//! Files of container runtimes: a name that is found is neither empty nor too long for a table, and
//! a malformed file gives no name.
#![no_main]
#![expect(
    clippy::unwrap_used,
    reason = "a directory that cannot be made is a mistake of this target"
)]

use std::cell::OnceCell;
use std::fs;

use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;
use uncore_trace::identity::runtimes::Runtimes;

const ID: &str = "3f4e5d6c7b8a90123f4e5d6c7b8a90123f4e5d6c7b8a90123f4e5d6c7b8a9012";

/// Path of each runtime's file about a container.
const FILES: [&str; 3] = [
    "var/lib/docker/containers/ID/config.v2.json",
    "run/containerd/io.containerd.runtime.v2.task/k8s.io/ID/config.json",
    "var/lib/containers/storage/overlay-containers/containers.json",
];

/// Longest accepted name; a pod's is preceded by a namespace of at most that length.
const LONGEST: usize = 256;

thread_local! {
    static ROOT: OnceCell<TempDir> = const { OnceCell::new() };
}

fuzz_target!(|input: (u8, &[u8])| {
    let (which, text) = input;
    ROOT.with(|root| {
        let root = root.get_or_init(|| tempfile::tempdir().unwrap()).path();
        for (number, file) in FILES.iter().enumerate() {
            let path = root.join(file.replace("ID", ID));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            if number == usize::from(which) % FILES.len() {
                fs::write(path, text).unwrap();
            } else {
                fs::remove_file(path).ok();
            }
        }
        let named = Runtimes::new(root).container_names(ID, true);
        for (name, most) in [(named.container, LONGEST), (named.pod, 2 * LONGEST + 1)] {
            let is_sane = |name: &String| !name.is_empty() && name.len() <= most;
            assert!(name.as_ref().is_none_or(is_sane), "{name:?}");
        }
    });
});
