use std::time::Duration;

use super::*;
use crate::tables::series::{Keep, Rotate};

fn error(text: &str) -> String {
    format!("{:#}", Config::parse(text).unwrap_err())
}

#[test]
fn an_empty_file_records_with_the_defaults_and_keeps_nothing() {
    let config = Config::parse("").unwrap();
    assert_eq!(config.cluster, "default");
    assert_eq!(config.record.tick_duration(), Duration::from_millis(1));
    assert_eq!(config.record.interval, Duration::from_millis(10));
    assert_eq!((config.ring, config.rollup, config.metrics), (None, None, None));
}

#[test]
fn a_section_without_keys_has_the_defaults() {
    let config = Config::parse("[ring]\n[rollup]\n[upload]\nurl = 's3://b/p'").unwrap();
    let ring = config.ring.unwrap();
    assert_eq!(
        (ring.part_limit, ring.keep),
        (Rotate::After(Duration::from_mins(5)), Keep::Bytes(20 << 30))
    );
    let rollup = config.rollup.unwrap();
    assert_eq!((rollup.window, rollup.owners), (Duration::from_secs(10), 100));
    assert_eq!(config.upload.unwrap().queue, 2 << 30);
}

#[test]
fn every_key_is_known_and_documented_by_its_struct() {
    // A key that the structs have but the list lacks would be refused, and vice versa.
    let full = "\
cluster = 'c'
[record]
groups = ['mem']
events = []
metrics = []
tick = '1ms'
interval = '10ms'
method = 'auto'
cause = 'cpu'
cgroup-depth = 2
canary = false
[identity]
trusted = ['/system.slice/ci.service']
[ring]
directory = '/r'
part = '1min'
keep = '5'
reserve = '1GiB'
mode = '0640'
[rollup]
directory = '/u'
window = '1s'
owners = 5
keep = '1d'
mode = '0640'
[metrics]
listen = '127.0.0.1:1'
beyond-loopback = false
mode = '0660'
token-file = '/t'
textfile = '/t.prom'
owners = 5
[upload]
url = 'file:///x'
endpoint = 'e'
region = 'r'
queue = '1GiB'
every = '1s'
keep-local = true
[otlp]
endpoint = 'http://c:4318'
interval = '1min'
[[trigger]]
name = 'n'
when = 'x'
before = '1s'
after = '1s'
[kept]
directory = '/k'
quota = '1GiB'
pause = '1s'
";
    let config = Config::parse(full).unwrap();
    assert_eq!(config.triggers.len(), 1);
    let lines = full.lines().filter(|line| line.contains(" = ")).count();
    let sections = full.lines().filter(|line| line.starts_with('[')).count();
    let keys: usize = keys::KEYS.iter().map(|(_, keys)| keys.len()).sum();
    assert_eq!(lines + sections, keys);
}

#[test]
fn a_number_of_parts_needs_no_quotes() {
    for text in ["[ring]\nkeep = 10", "[ring]\nkeep = '10'"] {
        assert_eq!(Config::parse(text).unwrap().ring.unwrap().keep, Keep::Parts(10));
    }
}

#[test]
fn errors_in_a_configuration_are_one_line_with_the_remedy() {
    for (text, says) in [
        ("clutser = 'a'", "clutser is not a key (did you mean cluster?)"),
        ("[ring]\npaart = '1min'", "paart is not a key of [ring] (did you mean part?)"),
        ("[upload]\nsecret-key = 'x'", "credentials are taken from the environment"),
        ("[otlp]\ntoken = 'x'", "taken from OTEL_EXPORTER_OTLP_HEADERS only"),
        ("[otlp]", "add [metrics] with listen"),
        ("[metrics]\ntextfile = '/x.prom'\n[otlp]", "add [metrics] with listen"),
        ("[otlp]\nendpoint = 'c:4318'", "write http://HOST:4318"),
        ("[otlp]\nendpoint = 'http://a:b@c'", "taken from OTEL_EXPORTER_OTLP_HEADERS only"),
        ("[otlp]\ninterval = '1ms'", "choose at least 100ms"),
        ("[upload]\nurl = 'ftp://x'", "write s3://BUCKET/PREFIX"),
        ("[upload]\nurl = 's3://b/'", "add [rollup]"),
        ("[rollup]\nwindow = '10ms'", "choose 1s to 5min"),
        ("[rollup]\nwindow = 10", "line 2"),
        ("[rollup]\nwindow = '10'", "with its unit: \"10s\""),
        (
            "[rollup]\nwindow = '1s'\n[record]\ninterval = '300ms'",
            "not a multiple of record.interval",
        ),
        ("[ring]\ndirectory = 'here'", "write the path from /"),
        ("[ring]\nkeep = '3MiB'\npart = '1MiB'", "at least four times"),
        ("[ring]\nkeep = 0", "at least one part is kept"),
        ("[ring]\nkeep = -1", "neither a number of parts nor a size"),
        ("[ring]\nkeep = 1.5", "neither a number of parts nor a size"),
        ("[ring]\nmode = '9'", "ring.mode: write the permissions"),
        ("[metrics]\nlisten = '0.0.0.0:9'", "beyond-loopback = true"),
        ("[metrics]\nlisten = 'x'", "line 2"),
        ("[metrics]\nlisten = 'unix:x.sock'", "write the path from /"),
        ("[metrics]\nlisten = ['unix:/a', '0.0.0.0:9']", "beyond-loopback = true"),
        ("[metrics]\nlisten = 'unix:/a'\nmode = '9'", "metrics.mode: write the permissions"),
        ("[metrics]\nlisten = 'unix:/a'\ntoken-file = 't'", "write the path from /"),
        ("[metrics]\n", "neither listen nor textfile"),
        ("[metrics]\ntextfile = '/x.txt'", "must end with .prom"),
        ("[[trigger]]\nname = 'a'", "add [ring]"),
        ("[ring]\n[[trigger]]\nname = '../a'", "is not a file name"),
        ("[ring]\n[[trigger]]\nname = 'a'\n[[trigger]]\nname = 'a'", "two of this name"),
        ("[ring]\nkeep = '2'\npart = '10s'\n[[trigger]]\nname = 'a'", "choose a larger ring.keep"),
        ("[rollup]\ndirectory = '/a'\n[kept]\ndirectory = '/a/./'", "kept.directory and rollup"),
        ("[rollup]\ndirectory = '/a'\n[kept]\ndirectory = '/a/b'", "kept.directory and rollup"),
        ("[rollup]\ndirectory = '/a/b'\n[kept]\ndirectory = '/a'", "kept.directory and rollup"),
        ("[ring]\ndirectory = '/a'\n[kept]\ndirectory = '/a'", "such as /a/kept"),
        ("[ring]\ndirectory = '/a/b'\n[kept]\ndirectory = '/a'", "such as /a/b/kept"),
        ("[kept]\ndirectory = 'here'", "kept.directory is here: write the path from /"),
        ("cluster = ''", "name it, or leave it out"),
        ("[identity]\ntrusted = ['ci.service']", "from the root of the hierarchy"),
        ("[identity]\ntrusted = ['/sys/fs/cgroup/a']", "from the root of the hierarchy"),
        ("x", "line 1"),
    ] {
        let error = error(text);
        assert!(error.contains(says), "{text:?}: {error}");
        assert!(!error.contains('\n'), "{text:?}: {error}");
    }
}

#[test]
fn the_directory_of_kept_parts_may_lie_in_the_ring_or_elsewhere() {
    let rest = "[ring]\ndirectory = '/r'\n[rollup]\ndirectory = '/u'\n[kept]\ndirectory =";
    for kept in ["/r/kept", "/k", "/rr", "/uu"] {
        assert!(Config::parse(&format!("{rest} '{kept}'")).is_ok(), "{kept}");
    }
}

#[test]
fn a_trigger_that_the_ring_has_room_for_only_at_times_is_found() {
    let trigger = "[[trigger]]\nname = 'a'\nbefore = '15s'\nafter = '5s'";
    for (ring, scarce) in [
        ("part = '10s'\nkeep = '2'", 1),
        ("part = '10s'\nkeep = '3'", 0),
        ("part = '1min'\nkeep = '1'", 1),
        ("part = '10s'\nkeep = '1GiB'", 0),
        ("part = '1MiB'\nkeep = '2'", 0),
    ] {
        let config = Config::parse(&format!("[ring]\n{ring}\n{trigger}")).unwrap();
        assert_eq!(config.scarce_triggers().count(), scarce, "{ring}");
    }
}

#[test]
fn a_cluster_is_the_name_of_a_directory() {
    // Each byte that is not plain takes three in the name of the directory.
    let fits = "ü".repeat(41);
    assert_eq!(cluster(&fits).unwrap(), fits);
    for (wrong, says) in [
        ("ü".repeat(42), "choose a shorter one"),
        ("a".repeat(129), "at most 128 bytes"),
        ("a\n".into(), "not a valid name"),
    ] {
        let error = cluster(&wrong).unwrap_err().to_string();
        assert!(error.contains(says) && !error.contains('\n'), "{wrong}: {error}");
    }
}
