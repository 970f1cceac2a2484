//! The metrics of an upload, also as Prometheus text for the textfile collector of
//! `node_exporter`.

use std::io;
use std::path::Path;

use uncore_trace_recording::tables::mode::FileMode;

/// Counts since the start of the process. The waiting files are those of the last scan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct UploadFigures {
    /// Files that the store confirmed.
    pub(crate) sent_files: u64,
    /// Their bytes.
    pub(crate) sent_bytes: u64,
    /// Files that are not confirmed yet.
    pub(crate) waiting_files: u64,
    /// Their bytes.
    pub(crate) waiting_bytes: u64,
    /// Files that were removed without being sent, because the queue was full.
    pub(crate) dropped_files: u64,
    /// Their bytes.
    pub(crate) dropped_bytes: u64,
    /// Attempts that failed.
    pub(crate) failures: u64,
}

impl UploadFigures {
    /// Counts a confirmed file of this size.
    pub(crate) const fn count_sent(&mut self, size: u64) {
        self.sent_files += 1;
        self.sent_bytes += size;
        self.no_longer_waits(size);
    }

    /// Counts a dropped file of this size.
    pub(crate) const fn count_dropped(&mut self, size: u64) {
        self.dropped_files += 1;
        self.dropped_bytes += size;
        self.no_longer_waits(size);
    }

    pub(crate) const fn no_longer_waits(&mut self, size: u64) {
        self.waiting_files = self.waiting_files.saturating_sub(1);
        self.waiting_bytes = self.waiting_bytes.saturating_sub(size);
    }

    /// The metrics as Prometheus text.
    pub(crate) fn format_metrics(&self) -> String {
        let Self {
            sent_files,
            sent_bytes,
            waiting_files,
            waiting_bytes,
            dropped_files,
            dropped_bytes,
            failures,
        } = *self;
        let lines = [
            ("sent_files_total", "counter", "Roll-up files that the store confirmed.", sent_files),
            ("sent_bytes_total", "counter", "Bytes of files that the store confirmed.", sent_bytes),
            ("waiting_files", "gauge", "Roll-up files that are not confirmed yet.", waiting_files),
            ("waiting_bytes", "gauge", "Bytes of files that are not confirmed yet.", waiting_bytes),
            (
                "dropped_files_total",
                "counter",
                "Unsent files that were removed because the queue was full.",
                dropped_files,
            ),
            (
                "dropped_bytes_total",
                "counter",
                "Bytes of unsent files that were removed.",
                dropped_bytes,
            ),
            ("failures_total", "counter", "Attempts to send a file that failed.", failures),
        ];
        let line = |(name, metric_type, help, value): (&str, &str, &str, u64)| {
            let name = format!("uncore_trace_upload_{name}");
            format!("# HELP {name} {help}\n# TYPE {name} {metric_type}\n{name} {value}\n")
        };
        lines.into_iter().map(line).collect()
    }

    /// Replaces the file at `path` atomically. All users may read it.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        FileMode::PUBLIC.replace_file(path, self.format_metrics().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_textfile_has_all_figures() {
        let mut figures =
            UploadFigures { waiting_files: 3, waiting_bytes: 60, ..UploadFigures::default() };
        figures.count_sent(10);
        figures.count_dropped(20);
        figures.failures = 7;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("upload.prom");
        figures.write(&path).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let values: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            values,
            [
                "uncore_trace_upload_sent_files_total 1",
                "uncore_trace_upload_sent_bytes_total 10",
                "uncore_trace_upload_waiting_files 1",
                "uncore_trace_upload_waiting_bytes 30",
                "uncore_trace_upload_dropped_files_total 1",
                "uncore_trace_upload_dropped_bytes_total 20",
                "uncore_trace_upload_failures_total 7",
            ]
        );
        assert_eq!(text.lines().count(), 3 * values.len());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
