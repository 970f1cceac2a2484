//! The profile of sums, in the format of pprof.

use std::io::Write;

use anyhow::Result;
use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message as _;

use super::proto::{Function, Label, Line, Location, Mapping, Profile, Sample, ValueType};
use super::share_profile::{ProfileSample, ShareProfile};
use crate::clock::TimeSpan;

/// What a profile says beside its samples.
#[derive(Debug)]
pub struct ProfileFacts {
    /// Wall time - monotonic time, ns.
    pub wall_ns: i64,
    /// Length of a window, ns; `None` if it is not known.
    pub window_ns: Option<i64>,
    /// What is missing, and other notes: viewers print them first.
    pub comments: Vec<String>,
}

impl ShareProfile {
    /// Writes the profile.
    ///
    /// # Errors
    ///
    /// `output` cannot be written.
    pub fn write_gzip(mut self, facts: ProfileFacts, output: impl Write) -> Result<()> {
        let mut gzip = GzEncoder::new(output, Compression::default());
        let mut comments = facts.comments;
        comments.extend(self.missing.iter().map(|(event, rows)| {
            format!("{event}: rows without a value, which are in no sample: {rows}")
        }));
        let mut number = |text: &str| self.number_string(text) as i64;
        let comment = comments.iter().map(|text| number(text)).collect();
        let wall_clock = ValueType { r#type: number("wall"), unit: number("nanoseconds") };
        let [confidence, percent, program] = ["confidence", "percent", "uncore-trace"].map(number);
        let mut message = Profile { sample: vec![Sample::default()], ..Profile::default() };
        let mut carried = vec![0.0; self.sample_types.names.len()];
        let mut totals = carried.clone();
        // A message may be written in parts, so no more than one sample is held in this form.
        for sum in &self.samples {
            let value = sum.value * sum.scale;
            totals[sum.sample_type] += value;
            let due = value + carried[sum.sample_type];
            // More than the format can hold is its largest number.
            let whole = (due + 0.5).floor().clamp(0.0, i64::MAX as f64);
            let has_fitted = whole < i64::MAX as f64;
            carried[sum.sample_type] = if has_fitted { due - whole } else { 0.0 };
            if whole == 0.0 {
                continue;
            }
            let mut label: Vec<Label> = sum.text_labels().collect();
            label.extend(sum.confidence.mean_confidence().map(|mean| {
                let num = (mean * 100.0).round() as i64;
                Label { key: confidence, str: 0, num, num_unit: percent }
            }));
            let mut values = vec![0; totals.len()];
            values[sum.sample_type] = whole as i64;
            message.sample[0] =
                Sample { location_id: self.locations_of(sum.stack), value: values, label };
            gzip.write_all(&message.encode_to_vec())?;
        }
        let TimeSpan { begin_ns, end_ns } = self.time.unwrap_or_default();
        message = Profile {
            sample: Vec::new(),
            comment,
            time_nanos: begin_ns.saturating_add(facts.wall_ns),
            duration_nanos: end_ns.saturating_sub(begin_ns),
            period_type: Some(wall_clock),
            period: facts.window_ns.unwrap_or_default(),
            // Without a mapping that has functions, viewers search for a binary.
            mapping: vec![Mapping { id: 1, filename: program, has_functions: true }],
            default_sample_type: self.default_sample_type(&totals),
            ..self.tables()
        };
        gzip.write_all(&message.encode_to_vec())?;
        gzip.finish()?.flush()?;
        Ok(())
    }

    /// The sample types, and what samples refer to.
    fn tables(&self) -> Profile {
        let ids = || 1_u64..;
        let locations =
            ids().map(|id| Location { id, mapping_id: 1, line: vec![Line { function_id: id }] });
        let functions = ids().zip(&self.frames.names).map(|(id, &(name, file))| Function {
            id,
            name: name as i64,
            filename: file as i64,
        });
        let sample_types = self.sample_types.names.iter();
        Profile {
            sample_type: sample_types
                .map(|&(name, unit)| ValueType { r#type: name as i64, unit: unit as i64 })
                .collect(),
            location: locations.take(self.frames.names.len()).collect(),
            function: functions.collect(),
            string_table: self.strings.names.clone(),
            ..Profile::default()
        }
    }

    /// The name of the type with most bytes, or else of the first.
    fn default_sample_type(&self, totals: &[f64]) -> i64 {
        let mut types = self.sample_types.names.iter().zip(totals);
        let is_bytes =
            |unit: usize| self.strings.names.get(unit).is_some_and(|unit| unit == "bytes");
        let of_bytes = types.clone().filter(|((_, unit), _)| is_bytes(*unit));
        let largest = of_bytes.max_by(|(_, total), (_, other)| total.total_cmp(other));
        largest.or_else(|| types.next()).map_or(0, |(&(name, _), _)| name as i64)
    }

    /// The ids of the locations of a stack, that of the leaf first.
    fn locations_of(&self, stack: usize) -> Vec<u64> {
        let stack_at = |index: usize| self.stacks.names.get(index).copied();
        let frames = std::iter::successors(stack_at(stack), |(below, _)| stack_at((*below)?));
        frames.map(|(_, frame)| frame as u64 + 1).collect()
    }
}

impl ProfileSample {
    fn text_labels(&self) -> impl Iterator<Item = Label> {
        let labels = self.labels.iter();
        labels.map(|&(key, text)| Label { key: key as i64, str: text as i64, ..Label::default() })
    }
}
