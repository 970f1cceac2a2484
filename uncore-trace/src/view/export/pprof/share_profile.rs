//! Sums of shares by stack and labels.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;

use anyhow::Result;
use arrow::array::{Int16Array, RecordBatch};

use crate::clock::TimeSpan;
use crate::schema::cgroups::whole_job;
use crate::schema::columns::{self, nullable_value};
use crate::schema::owner;
use crate::text::printable;
use crate::view::key::{SMALL, name_event, unnamed_cgroup};
use crate::view::links::Links;
use crate::view::names::NameNumbers;
use crate::view::selected::ReportSelection;
use crate::view::sums::Confidence;

/// The columns with names, in the order in which they are read.
const WORDS: [&str; 10] =
    ["event", "filter", "unit", "owner", "comm", "cgroup", "container", "pod", "job", "method"];

/// The columns with numbers.
const NUMBERS: [&str; 8] =
    ["mono_ns", "window_ns", "counter", "socket", "cgroup_id", "processes", "value", "confidence"];

/// Dictionary keys of [`WORDS`]; the counter, the socket, the id of the cgroup, and whether the row
/// sums up processes. In one batch, rows with equal numbers belong to one sample.
type RowNumbers = [i64; WORDS.len() + 4];

/// What stands for all further samples.
const OTHERS: &str = "(others)";

/// Limits of the memory of a profile. What is beyond them is one sample for each event and link.
#[derive(Debug, Clone, Copy)]
pub struct ProfileLimits {
    /// Samples with names of their own.
    pub samples: usize,
    /// Bytes of texts. The last sample within the limit may have a path of the longest length.
    pub text_bytes: usize,
}

/// Sums of the rows of `fabric`, `sums` or a roll-up, by what a sample of a profile is.
#[derive(Debug)]
pub struct ShareProfile {
    links: Links,
    limits: ProfileLimits,
    /// Bytes of the texts that are kept.
    text_bytes: usize,
    /// Escaped, as they are printed.
    pub(super) strings: NameNumbers<String>,
    /// The numbers of the name and the file of each frame.
    pub(super) frames: NameNumbers<(usize, usize)>,
    /// The stack below each stack, and its own frame.
    pub(super) stacks: NameNumbers<(Option<usize>, usize)>,
    /// The numbers of the name and the unit of each sample type.
    pub(super) sample_types: NameNumbers<(usize, usize)>,
    pub(super) samples: Vec<ProfileSample>,
    sample_by_names: HashMap<String, usize>,
    /// Number of rows without a value, by event.
    pub(super) missing: BTreeMap<String, usize>,
    /// The time of the rows, `CLOCK_MONOTONIC`, ns; `None` without rows.
    pub(super) time: Option<TimeSpan<i64>>,
}

/// The sum of the rows with one stack and the same labels.
#[derive(Debug)]
pub(super) struct ProfileSample {
    pub sample_type: usize,
    pub stack: usize,
    /// The numbers of the key and the text of each label.
    pub labels: Vec<(usize, usize)>,
    /// The factor that makes the unit of the sample type of that of the rows.
    pub scale: f64,
    /// In the unit of the rows.
    pub value: f64,
    pub confidence: Confidence,
}

/// What a sample is of; empty texts are left out.
struct SampleNames<'a> {
    event: &'a str,
    unit: &'a str,
    /// The link with its direction, or the event.
    traffic: &'a str,
    owner: &'a str,
    cgroup: &'a str,
    comm: &'a str,
    labels: [(&'static str, &'a str); 6],
}

impl SampleNames<'_> {
    /// All texts, which have no zero character in them.
    fn joined_text(&self) -> String {
        let Self { event, unit, traffic, owner, cgroup, comm, labels } = *self;
        let names = [event, unit, traffic, owner, cgroup, comm];
        names.into_iter().chain(labels.map(|(_, text)| text)).collect::<Vec<_>>().join("\0")
    }
}

impl ShareProfile {
    /// No rows yet, of a recording with these links.
    pub fn new(links: Links, limits: ProfileLimits) -> Self {
        let mut strings = NameNumbers::default();
        // The format wants it to be the first.
        strings.number_of(String::new());
        Self {
            links,
            limits,
            text_bytes: 0,
            strings,
            frames: NameNumbers::default(),
            stacks: NameNumbers::default(),
            sample_types: NameNumbers::default(),
            samples: Vec::new(),
            sample_by_names: HashMap::new(),
            missing: BTreeMap::new(),
            time: None,
        }
    }

    /// The columns that are read.
    pub(super) fn columns_to_read() -> Vec<&'static str> {
        [&WORDS[..], &NUMBERS[..]].concat()
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.time.is_none()
    }

    /// Adds the selected rows of a batch whose windows end in `wanted`.
    ///
    /// # Errors
    ///
    /// A column is missing.
    pub fn add_rows(
        &mut self,
        batch: &RecordBatch,
        wanted: &RangeInclusive<i64>,
        selected: &ReportSelection,
    ) -> Result<()> {
        let words = WORDS.iter().map(|name| columns::word_column(batch, name));
        let words = words.collect::<Result<Vec<_>>>()?;
        let ends = columns::i64_column(batch, "mono_ns")?;
        let lengths = columns::i64_column(batch, "window_ns")?;
        let counters = columns::i32_column(batch, "counter")?;
        let sockets: &Int16Array = columns::typed_column(batch, "socket")?;
        let cgroup_ids = columns::bits_column(batch, "cgroup_id")?;
        let processes = columns::i32_column(batch, "processes")?;
        let values = columns::f64_column(batch, "value")?;
        let confidences = columns::f32_column(batch, "confidence")?;
        let selected = selected.select_rows(batch)?;
        let mut sample_by_numbers: HashMap<RowNumbers, usize> = HashMap::new();
        for row in 0..batch.num_rows() {
            let (end_ns, counter) = (ends.value(row), counters.value(row));
            if !wanted.contains(&end_ns) || !selected.has_event(row, counter) {
                continue;
            }
            let window = TimeSpan::new(end_ns.saturating_sub(lengths.value(row)), end_ns);
            self.time = Some(self.time.map_or(window, |time| time.hull(window)));
            let name = |index: usize| words[index].get(row).unwrap_or_default();
            let value = nullable_value(values, row).filter(|value| value.is_finite());
            let Some(value) = value else {
                *self.missing.entry(name_event(name(0), name(1))).or_default() += 1;
                continue;
            };
            let socket = nullable_value(sockets, row);
            let small = nullable_value(processes, row).map(|_| SMALL);
            let cgroup_id = cgroup_ids.get(row);
            let numbers = [
                counter.into(),
                socket.map_or(-1, i64::from),
                cgroup_id.map_or(-1, u64::cast_signed),
                small.map_or(0, |_| 1),
            ];
            let keys = words.iter().map(|word| i64::from(word.dictionary_key(row)));
            let mut row_numbers = RowNumbers::default();
            row_numbers
                .iter_mut()
                .zip(keys.chain(numbers))
                .for_each(|(slot, number)| *slot = number);
            let sample_index = *sample_by_numbers.entry(row_numbers).or_insert_with(|| {
                let event = name_event(name(0), name(1));
                let link = self.links.link_of(counter).map(|(link_index, direction)| {
                    self.links.direction_label(link_index, direction)
                });
                let socket = socket.map(|socket| socket.to_string()).unwrap_or_default();
                self.find_or_add_sample(&SampleNames {
                    event: &event,
                    unit: name(2),
                    traffic: link.as_deref().unwrap_or(&event),
                    owner: name(3),
                    cgroup: &cgroup_text(name(3), name(5), cgroup_id),
                    comm: small.unwrap_or(name(4)),
                    labels: [
                        ("owner", name(3)),
                        ("method", name(9)),
                        ("pod", name(7)),
                        ("container", name(6)),
                        ("job", whole_job(name(8))),
                        ("socket", socket.as_str()),
                    ],
                })
            });
            let sample = &mut self.samples[sample_index];
            sample.value += value;
            sample.confidence.add_row(value, nullable_value(confidences, row));
        }
        Ok(())
    }

    fn find_or_add_sample(&mut self, names: &SampleNames<'_>) -> usize {
        let text = names.joined_text();
        if let Some(known_index) = self.sample_by_names.get(&text) {
            return *known_index;
        }
        let is_full =
            self.samples.len() >= self.limits.samples || self.text_bytes >= self.limits.text_bytes;
        if is_full && names.owner != OTHERS {
            return self.find_or_add_sample(&SampleNames {
                owner: OTHERS,
                cgroup: "",
                comm: "",
                labels: Default::default(),
                ..*names
            });
        }
        let labels = names.labels.iter().filter(|(_, text)| !text.is_empty());
        let labels =
            labels.map(|(key, text)| (self.number_string(key), self.number_string(text))).collect();
        let (unit, scale) = profile_unit(names.unit);
        let sample_type = (self.number_string(names.event), self.number_string(unit));
        let sample = ProfileSample {
            sample_type: self.sample_types.number_of(sample_type),
            stack: self.number_stack(names),
            labels,
            scale,
            value: 0.0,
            confidence: Confidence::default(),
        };
        self.samples.push(sample);
        self.text_bytes += text.len();
        self.sample_by_names.insert(text, self.samples.len() - 1);
        self.samples.len() - 1
    }

    /// The stack of a sample: see [`super`].
    fn number_stack(&mut self, names: &SampleNames<'_>) -> usize {
        let mut stack = self.number_frame(None, names.traffic, "");
        match names.owner {
            owner::TASK => {}
            OTHERS => stack = self.number_frame(Some(stack), OTHERS, ""),
            kind => stack = self.number_frame(Some(stack), &format!("({kind})"), ""),
        }
        let cgroup = names.cgroup;
        // The root has no component.
        let begins = cgroup.match_indices('/').map(|(begin, _)| begin).filter(|begin| *begin > 0);
        let ends = begins.chain([cgroup.len()]).filter(|end| *end > 0);
        let mut begin = 0;
        for end in ends {
            stack = self.number_frame(Some(stack), &cgroup[begin..end], &cgroup[..end]);
            begin = end;
        }
        if names.comm.is_empty() {
            return stack;
        }
        self.number_frame(Some(stack), names.comm, "")
    }

    fn number_frame(&mut self, below: Option<usize>, name: &str, file: &str) -> usize {
        let frame = (self.number_string(name), self.number_string(file));
        let frame = self.frames.number_of(frame);
        self.stacks.number_of((below, frame))
    }

    /// The number of a text, which is escaped: viewers print it as it is.
    pub(super) fn number_string(&mut self, text: &str) -> usize {
        let text = printable(text).into_owned();
        let (text_bytes, known) = (text.len(), self.strings.names.len());
        let number = self.strings.number_of(text);
        if number == known {
            // The table and its index have a copy each.
            self.text_bytes += 2 * text_bytes;
        }
        number
    }
}

/// The cgroup of an owner, as `report` names it; empty for an owner that has none.
fn cgroup_text<'a>(owner: &str, path: &'a str, id: Option<u64>) -> Cow<'a, str> {
    if path.is_empty() && owner == owner::TASK { unnamed_cgroup(id).into() } else { path.into() }
}

/// The unit as viewers know it, and how many of it the unit of a counter is: values of a profile
/// are whole numbers.
fn profile_unit(unit: &str) -> (&str, f64) {
    match unit {
        "" => ("count", 1.0),
        "ns" => ("nanoseconds", 1.0),
        "Joules" => ("microjoules", 1e6),
        unit => (unit, 1.0),
    }
}
