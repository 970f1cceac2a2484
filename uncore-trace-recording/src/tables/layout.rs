//! The names of the files of a roll-up: shared by the writer, the uploader and the readers.
//!
//! A file is `cluster=C/date=YYYY-MM-DD/hour=HH/host=NAME/BOOT_SECOND.parquet`, in UTC. The hour is
//! before the host, so that who asks about an hour lists that hour alone, and a policy of a store
//! keeps a host to the files below its own name. `BOOT` is the begin of the boot's id, and `SECOND`
//! the second of `CLOCK_MONOTONIC` in which the file's first window ended, or a later one.
//!
//! Guarantees: a name is of this layout at this depth alone, and each cluster and host has one
//! spelling. So what a host may write below its own name is never read as another's.

use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;

use jiff::tz::TimeZone;
use jiff::{Timestamp, civil};

use crate::clock::TimeSpan;
use crate::schema::origin::RecordingOrigin;
use crate::schema::rollup;

/// The prefixes of the names of directories, from the outer to the inner.
pub const KEYS: [&str; 4] = ["cluster=", "date=", "hour=", "host="];

/// The layout as messages have it.
pub(crate) const SHAPE: &str = "cluster=C/date=YYYY-MM-DD/hour=HH/host=NAME/BOOT_SECOND.parquet";

/// The cluster of a host that has none.
pub const DEFAULT: &str = "default";

/// Suffix of the name of a file.
pub const FILE: &str = ".parquet";

/// Number of digits of the boot's id in a name: two boots of a host in one hour have the same with
/// a probability of 10^-9.
pub(crate) const BOOT_DIGITS: usize = 8;

const HOUR_US: i64 = 3_600_000_000;

/// What the directories above a file say of it, as far as they are of the layout.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Partition {
    /// The values as they are written, in the order of [`KEYS`].
    values: [Option<String>; 4],
    /// How many keys there are, from the outermost to that of the directory itself.
    depth: usize,
}

impl Partition {
    /// What the end of a path says. A directory whose name is of no key is above all clusters.
    pub(crate) fn from_path(path: &Path) -> Self {
        let mut names =
            path.components().rev().map(|component| component.as_os_str().to_str().unwrap_or(""));
        let mut partition = Self::default();
        let Some(innermost) = names.next() else { return partition };
        let Some(level) =
            (0..KEYS.len()).find(|level| partition_value(*level, innermost).is_some())
        else {
            return partition;
        };
        partition.depth = level + 1;
        let outer = names.zip((0..level).rev());
        for (name, level) in std::iter::once((innermost, level)).chain(outer) {
            let Some(value) = partition_value(level, name) else { break };
            partition.values[level] = Some(value.to_owned());
        }
        partition
    }

    /// A directory of this name in it; none if it is not of the layout there.
    pub fn child_partition(&self, name: &str) -> Option<Self> {
        let value = partition_value(self.depth, name)?;
        let mut child = self.clone();
        child.values[self.depth] = Some(value.to_owned());
        child.depth += 1;
        Some(child)
    }

    /// Whether files of the roll-up are in it.
    pub fn has_files(&self) -> bool {
        self.depth == KEYS.len()
    }

    /// How many keys it has.
    pub(crate) fn key_depth(&self) -> usize {
        self.depth
    }

    /// The host, if the path says it.
    pub fn host_name(&self) -> Option<String> {
        self.values[3].as_deref().map(decode_component)
    }

    /// The times of its hour or day, µs since 1970, if the path says it.
    pub(crate) fn range_us(&self) -> Option<Range<i64>> {
        let date = self.values[1].as_deref()?.parse::<civil::Date>().ok()?;
        let hour = self.values[2].as_deref().and_then(|hour| hour.parse::<i64>().ok());
        let begin = date.to_zoned(TimeZone::UTC).ok()?.timestamp().as_microsecond();
        Some(match hour {
            Some(hour) => begin + hour * HOUR_US..begin + (hour + 1) * HOUR_US,
            None => begin..begin + 24 * HOUR_US,
        })
    }

    /// Whether windows that end after the begin and not after the end of a span of `CLOCK_REALTIME`
    /// may be in it: several clocks are joined by times that are off by half a window.
    pub(crate) fn may_have(&self, wall: TimeSpan<i64>) -> bool {
        const SLACK: i64 = rollup::LONGEST_WINDOW_NS / 2;
        self.range_us().is_none_or(|range| {
            range.end.saturating_mul(1000).saturating_add(SLACK) > wall.begin_ns
                && range.start.saturating_mul(1000).saturating_sub(SLACK) <= wall.end_ns
        })
    }

    /// Why a file of this origin does not belong here; `None` if it does.
    pub fn refusal_reason(&self, origin: &RecordingOrigin) -> Option<String> {
        let cluster = origin.cluster.as_deref().unwrap_or(DEFAULT);
        for (key, level, actual) in [("cluster", 0, cluster), ("host", 3, &origin.host)] {
            if let Some(named) = &self.values[level]
                && *named != encode_component(actual)
            {
                return Some(format!("it is of the {key} {actual}, but is in {key}={named}"));
            }
        }
        None
    }
}

/// The path below the root of a host's hour; the time is in µs since 1970.
pub(crate) fn hour_directory(cluster: &str, time: Timestamp, host: &str) -> String {
    let time = time.to_zoned(TimeZone::UTC).strftime("date=%Y-%m-%d/hour=%H");
    format!("cluster={}/{time}/host={}", encode_component(cluster), encode_component(host))
}

/// Whether it is the name of a complete file. Those of unfinished ones end in `.partial` or `.tmp`.
pub fn is_file(name: &str) -> bool {
    let boot_and_second = name.strip_suffix(FILE).and_then(|stem| stem.split_once('_'));
    boot_and_second.is_some_and(|(boot, second)| {
        boot.len() <= BOOT_DIGITS
            && boot.bytes().all(|byte| byte.is_ascii_hexdigit())
            && !second.is_empty()
            && second.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Whether a name begins as a directory of the layout does, at whatever depth.
pub fn has_key(name: &str) -> bool {
    KEYS.iter().any(|key| name.starts_with(key))
}

/// The value of a directory's name at this depth, if it is valid there.
fn partition_value(depth: usize, name: &str) -> Option<&str> {
    let value = name.strip_prefix(KEYS.get(depth)?)?;
    let is_valid = match depth {
        1 => {
            value.len() == 10
                && value.parse::<civil::Date>().is_ok_and(|date| date.to_string() == value)
        }
        2 => value.len() == 2 && value.bytes().all(|byte| byte.is_ascii_digit()) && value < "24",
        _ => !value.is_empty() && encode_component(&decode_component(value)) == value,
    };
    is_valid.then_some(value)
}

/// A name as a component of a path. Bytes other than letters, digits, `.`, `-` and `_` become
/// `%XX`, as query engines write them in partitions.
pub(crate) fn encode_component(name: &str) -> String {
    let mut text = String::new();
    for (index, byte) in name.bytes().enumerate() {
        // A name that begins with a dot would be hidden, or could lead out of the directory.
        let is_plain =
            byte.is_ascii_alphanumeric() || b"-_".contains(&byte) || byte == b'.' && index > 0;
        if is_plain {
            text.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            write!(text, "%{byte:02X}").unwrap_or_default();
        }
    }
    if text.is_empty() { "unknown".to_owned() } else { text }
}

/// The name that [`encode_component`] made this of.
fn decode_component(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut remaining = text.as_bytes();
    while let Some((&head, tail)) = remaining.split_first() {
        let digits = tail.get(..2).filter(|_| head == b'%');
        let byte = digits
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(byte.unwrap_or(head));
        remaining = if byte.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRECTORY: &str = "/b/cluster=c%20d/date=2026-11-24/hour=07/host=h1";

    #[test]
    fn a_path_says_what_its_end_does() {
        let whole = Partition::from_path(Path::new(DIRECTORY));
        assert!(whole.has_files());
        assert_eq!(whole.host_name().as_deref(), Some("h1"));
        // 2026-11-24 07:00 UTC.
        let hour = 1_795_478_400_000_000 + 7 * HOUR_US;
        assert_eq!(whole.range_us(), Some(hour..hour + HOUR_US));
        let day = Partition::from_path(Path::new("/b/cluster=c/date=2026-11-24"));
        assert_eq!((day.key_depth(), day.host_name()), (2, None));
        assert_eq!(day.range_us(), Some(hour - 7 * HOUR_US..hour + 17 * HOUR_US));
        assert_eq!(
            day.child_partition("hour=07")
                .and_then(|inner| inner.child_partition("host=h1"))
                .unwrap()
                .host_name(),
            whole.host_name()
        );
        assert_eq!(day.child_partition("hour=07").unwrap().child_partition("cluster=x"), None);
        // What was copied without the directories above is of any time.
        let copied = Partition::from_path(Path::new("/copy/host=a%2Fb"));
        assert_eq!(
            (copied.has_files(), copied.range_us(), copied.host_name()),
            (true, None, Some("a/b".into()))
        );
        assert_eq!(Partition::from_path(Path::new("/copy/hosts")), Partition::default());
    }

    #[test]
    fn values_are_valid_and_of_one_spelling() {
        for (depth, name) in [
            (0, "cluster=c%20d"),
            (0, "cluster=%2E."),
            (1, "date=2026-02-28"),
            (2, "hour=23"),
            (3, "host=%C3%BC"),
            (3, "host=unknown"),
        ] {
            assert!(partition_value(depth, name).is_some(), "{name}");
        }
        for (depth, name) in [
            (0, "cluster="),
            (0, "cluster=c d"),
            (0, "host=a"),
            (0, "Cluster=c"),
            (1, "date=2026-2-28"),
            (1, "date=2026-02-30"),
            (1, "date=x"),
            (2, "hour=24"),
            (2, "hour=7"),
            (2, "hour=+7"),
            (3, "host=%41"),
            (3, "host=%2f"),
            (3, "host=%"),
            (3, "host=."),
            (3, "host=.."),
            (3, "host=%FF"),
            (4, "host=a"),
        ] {
            assert_eq!(partition_value(depth, name), None, "{name}");
        }
        for name in ["01234567_0000000001.parquet", "_1.parquet"] {
            assert!(is_file(name), "{name}");
        }
        for name in [
            "h1_01234567_1.parquet",
            "01234567_.parquet",
            "01234567.parquet",
            ".1_1.parquet",
            "1_1.parquet.tmp",
            "1_-1.parquet",
            "012345678_1.parquet",
            "compact_1.parquet",
        ] {
            assert!(!is_file(name), "{name}");
        }
    }

    #[test]
    fn a_file_belongs_where_its_origin_is() {
        let partition = Partition::from_path(Path::new(DIRECTORY));
        let origin = |host: &str, cluster: Option<&str>| RecordingOrigin {
            host: host.to_owned(),
            boot_id: "b".to_owned(),
            cluster: cluster.map(str::to_owned),
        };
        assert_eq!(partition.refusal_reason(&origin("h1", Some("c d"))), None);
        assert_eq!(
            partition.refusal_reason(&origin("h2", Some("c d"))).as_deref(),
            Some("it is of the host h2, but is in host=h1")
        );
        let reason = partition.refusal_reason(&origin("h1", None));
        assert_eq!(
            reason.as_deref(),
            Some("it is of the cluster default, but is in cluster=c%20d")
        );
        assert_eq!(Partition::default().refusal_reason(&origin("h2", None)), None);
        let time = Timestamp::from_microsecond(1_795_478_400_000_000).unwrap();
        assert_eq!(
            hour_directory("../c=/d", time, ""),
            "cluster=%2E.%2Fc%3D%2Fd/date=2026-11-24/hour=00/host=unknown"
        );
    }
}
