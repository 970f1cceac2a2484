//! Paths of cgroups: cgroups that a container makes below its own do not change its identity, and
//! names that are found have no path separator.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uncore_trace::identity::containers::{Inside, label_with_id};

fuzz_target!(|input: &str| {
    // The second line is the part of the path that the container makes.
    let (path, below) = input.split_once('\n').unwrap_or((input, "below"));
    let inside = Inside::parse(path);
    for name in [&inside.container, &inside.pod, &inside.job].into_iter().flatten() {
        assert!(!name.is_empty() && !name.contains('/'), "{path:?}: {name:?}");
        assert!(!label_with_id(None, name).is_empty(), "{path:?}");
    }
    if inside.container.is_some() {
        let deeper = format!("{path}/{below}");
        let deeper = Inside::parse(&deeper);
        assert_eq!(deeper.container, inside.container, "{path:?} and {below:?}");
        assert_eq!(deeper.pod, inside.pod, "{path:?} and {below:?}");
        assert_eq!(deeper.job, inside.job, "{path:?} and {below:?}");
    }
});
