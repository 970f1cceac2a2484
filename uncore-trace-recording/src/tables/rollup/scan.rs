//! The rows of a roll-up in the shape of `fabric`, in the order of their windows' ends.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use arrow::array::{
    Array as _, ArrayRef, AsArray as _, BooleanArray, DictionaryArray, Int32Array, Int64Array,
    PrimitiveArray, RecordBatch, StringArray, TimestampMicrosecondArray, new_null_array,
};
use arrow::compute::{filter_record_batch, interleave};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Field, Float32Type, Float64Type, Int64Type, Schema, SchemaRef,
};

use super::counters::{CounterIdentity, WORDS, find_counter_ids};
use super::{HourFile, MORE, RollupReader, TIME};
use crate::schema::columns::{self, WordColumn, nullable_value};
use crate::schema::{fabric, rollup};
use crate::tables::pages::BATCH_ROWS;

/// What is the same in all rows of a counter's window.
const WINDOW: [&str; 3] = ["known_ns", "total", "running"];

/// Columns of `fabric` that no row of a roll-up has.
const ABSENT: [&str; 5] = ["cpu", "pid", "cgroup_id", "cgroup_confidence", "processes"];

/// Rows that are held: 50 MiB. With more, files are read in several turns. Tests need them soon.
pub(super) const MOST_ROWS: f64 = if cfg!(test) { 50.0 } else { 524_288.0 };

/// The schema of a scan: the columns of `fabric`, and [`MORE`].
pub(in crate::tables) fn scan_schema() -> SchemaRef {
    let (recorded, stored) = (fabric::schema(), rollup::schema());
    let as_read = |field: &Arc<Field>| {
        let is_absent = ABSENT.contains(&field.name().as_str());
        let field = Field::clone(field);
        if is_absent { field.with_nullable(true) } else { field }
    };
    let extra_fields = stored.fields().iter().filter(|field| MORE.contains(&field.name().as_str()));
    let owned_extra = extra_fields.map(|field| Field::clone(field));
    Arc::new(Schema::new(
        recorded.fields().iter().map(as_read).chain(owned_extra).collect::<Vec<_>>(),
    ))
}

/// The batches of a roll-up, in the shape of `fabric` and in the order of windows' ends.
#[derive(Debug)]
pub struct RollupScan {
    rollup: Arc<RollupReader>,
    schema: SchemaRef,
    /// Columns that are read, by names of `rollup`.
    read_columns: Vec<&'static str>,
    /// Whether counters have to be known.
    has_counters: bool,
    groups: Vec<ScanGroup>,
    wanted_ends: RangeInclusive<i64>,
    /// The time at which the next turn begins; `None` after the last turn.
    next_turn_ns: Option<i64>,
    turn: ScanTurn,
}

/// A row group, and the ends of its first and last window.
#[derive(Debug, Clone, Copy)]
struct ScanGroup {
    file_index: usize,
    number: usize,
    begin_ns: i64,
    end_ns: i64,
    rows: f64,
}

/// The rows of a stretch of time.
#[derive(Debug, Default)]
struct ScanTurn {
    /// For each batch that was read, the columns of the schema. A word is its number in `words`.
    chunks: Vec<Vec<ArrayRef>>,
    /// By column, its words.
    words: Vec<Interner>,
    dictionaries: Vec<Option<Arc<StringArray>>>,
    rows: VecDeque<RowRef>,
    /// Windows of several sets.
    merged: HashMap<(i64, i32), MergedWindow>,
}

/// A row that was read. Rows are ordered by window, then by counter and set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RowRef {
    /// End of its window.
    end_ns: i64,
    /// Its counter; 0 where none is asked for.
    counter: i32,
    /// Its file.
    set: u32,
    /// Its batch, and its row there.
    chunk: u32,
    row: u32,
}

impl RowRef {
    /// The window of its counter.
    const fn window_key(&self) -> (i64, i32) {
        (self.end_ns, self.counter)
    }
}

/// What is the same in all rows of a window.
#[derive(Debug, Clone, Copy, Default)]
struct MergedWindow {
    known_ns: i64,
    total: Option<f64>,
    running: f32,
}

/// Words and their numbers.
#[derive(Debug, Default)]
struct Interner {
    index: HashMap<String, i32>,
    list: Vec<String>,
}

impl Interner {
    fn intern_word(&mut self, word: &str) -> i32 {
        if let Some(number) = self.index.get(word) {
            return *number;
        }
        let number = self.list.len() as i32;
        self.list.push(word.to_owned());
        self.index.insert(word.to_owned(), number);
        number
    }

    /// The numbers of the words in a batch.
    fn intern_batch(&mut self, words: WordColumn<'_>, rows: usize) -> Int32Array {
        let mut known: Vec<Option<i32>> = vec![None; words.dictionary_values().len()];
        let number = |row| {
            let slot = known.get_mut(usize::try_from(words.dictionary_key(row)).ok()?)?;
            if slot.is_none() {
                *slot = Some(self.intern_word(words.get(row)?));
            }
            *slot
        };
        (0..rows).map(number).collect()
    }
}

impl RollupScan {
    /// Scans these columns of the windows that end in a range.
    pub(in crate::tables) fn new(
        rollup: &Arc<RollupReader>,
        columns: &[&str],
        wanted: Option<RangeInclusive<i64>>,
    ) -> Self {
        let asked = |name: &str| columns.contains(&name);
        let has_counters =
            asked("counter") || asked("value") || WINDOW.iter().any(|name| asked(name));
        let of_counter = WORDS.iter().chain(&WINDOW).chain(&["socket", "window_ns"]);
        let is_read = |name: &&str| {
            *name == TIME
                || asked(name)
                || has_counters && of_counter.clone().any(|column| column == name)
        };
        let stored_names = rollup::TABLE.encodings.iter().map(|(name, _)| *name);
        let read_columns = stored_names.filter(is_read).collect();
        let full_schema = scan_schema();
        let fields = full_schema.fields().iter().filter(|field| asked(field.name()));
        let schema = Arc::new(Schema::new(fields.cloned().collect::<Vec<_>>()));
        let wanted_ends = wanted.unwrap_or(i64::MIN..=i64::MAX);
        let mut groups = Vec::new();
        for (file_index, hour_file) in rollup.hour_files.iter().enumerate() {
            for (number, rows) in hour_file.table.group_rows().into_iter().enumerate() {
                let Some((begin, end)) = hour_file.table.group_bounds(number, TIME) else {
                    continue;
                };
                let begin_ns = begin.saturating_add(hour_file.shift_ns);
                let end_ns = end.saturating_add(hour_file.shift_ns);
                if begin_ns <= *wanted_ends.end() && *wanted_ends.start() <= end_ns {
                    let rows = rows as f64;
                    groups.push(ScanGroup { file_index, number, begin_ns, end_ns, rows });
                }
            }
        }
        let first_begin_ns = groups.iter().map(|group| group.begin_ns).min();
        let next_turn_ns = first_begin_ns.map(|begin_ns| begin_ns.max(*wanted_ends.start()));
        let (rollup, turn) = (Arc::clone(rollup), ScanTurn::default());
        Self { rollup, schema, read_columns, has_counters, groups, wanted_ends, next_turn_ns, turn }
    }

    /// The end of the turn that begins at `from`: as long as its rows are not too many, but a
    /// window at least.
    fn turn_end(&self, from: i64) -> i64 {
        let last_end = self.groups.iter().map(|group| group.end_ns).max().unwrap_or(from);
        let turn_limit = last_end.min(*self.wanted_ends.end()).max(from);
        // As if the rows of a group were spread evenly over its time.
        let estimate_rows = |until: i64| -> f64 {
            let group_share = |group: &ScanGroup| {
                let length = group.end_ns.saturating_sub(group.begin_ns).saturating_add(1) as f64;
                let common = until.min(group.end_ns).saturating_sub(from.max(group.begin_ns));
                group.rows * (common.saturating_add(1).max(0) as f64 / length)
            };
            self.groups.iter().map(group_share).sum()
        };
        if estimate_rows(turn_limit) <= MOST_ROWS {
            return turn_limit;
        }
        let (mut fits, mut too_far) = (from, turn_limit);
        while too_far.saturating_sub(fits) > 1 {
            let middle = fits.midpoint(too_far);
            if estimate_rows(middle) <= MOST_ROWS { fits = middle } else { too_far = middle }
        }
        fits.max(from.saturating_add(self.rollup.window_ns - 1)).min(turn_limit)
    }

    /// Reads the rows of the next stretch of time; `false` where there is none.
    fn read_next_turn(&mut self) -> Result<bool> {
        let Some(from) = self.next_turn_ns else { return Ok(false) };
        let until = self.turn_end(from);
        let mut turn = ScanTurn::default();
        turn.words.resize_with(self.schema.fields().len(), Interner::default);
        let mut rows = Vec::new();
        let rollup = Arc::clone(&self.rollup);
        // What is the same in a window, of each batch.
        let mut windows = Vec::new();
        let is_in_turn = |group: &&ScanGroup| group.begin_ns <= until && from <= group.end_ns;
        for group in self.groups.iter().filter(is_in_turn) {
            let hour_file = &rollup.hour_files[group.file_index];
            for batch in hour_file.table.scan_group(&self.read_columns, group.number)? {
                let batch = self.select_turn(&batch?, hour_file, from..=until)?;
                let ends = columns::i64_column(&batch, TIME)?;
                let counters = if self.has_counters {
                    let known = |counter: CounterIdentity| {
                        rollup.counters.index.get(&counter).copied().context("the file has changed")
                    };
                    find_counter_ids(&batch, hour_file.origin, known)?
                } else {
                    vec![0; batch.num_rows()]
                };
                let (set, chunk) = (hour_file.set as u32, turn.chunks.len() as u32);
                let of_batch = ends.values().iter().zip(&counters).enumerate();
                rows.extend(of_batch.map(|(row, (&end_ns, &counter))| {
                    let row = row as u32;
                    RowRef { end_ns, counter, set, chunk, row }
                }));
                turn.chunks.push(self.read_chunk(&batch, hour_file, counters, &mut turn.words)?);
                if self.has_counters {
                    windows.push(batch.project(&window_columns(&batch)?)?);
                }
            }
        }
        rows.sort_unstable();
        if self.has_counters {
            merge_windows(&mut rows, &windows, &mut turn.merged)?;
        }
        let words = turn.words.iter().zip(self.schema.fields());
        let dictionaries = words.map(|(words, field)| {
            let is_word = matches!(field.data_type(), DataType::Dictionary(..));
            is_word.then(|| Arc::new(StringArray::from_iter_values(&words.list)))
        });
        turn.dictionaries = dictionaries.collect();
        turn.rows = rows.into();
        self.turn = turn;
        let is_last = until >= *self.wanted_ends.end()
            || self.groups.iter().all(|candidate| candidate.end_ns <= until);
        self.next_turn_ns = if is_last { None } else { self.next_begin(until) };
        Ok(true)
    }

    /// The earliest time at which the first window after `until` may end.
    fn next_begin(&self, until: i64) -> Option<i64> {
        let earliest = until.saturating_add(1);
        self.groups
            .iter()
            .filter(|group| group.end_ns > until)
            .map(|group| group.begin_ns.max(earliest))
            .min()
    }

    /// The rows of a batch whose windows end in a stretch of time, with their times on the common
    /// clock.
    fn select_turn(
        &self,
        batch: &RecordBatch,
        hour_file: &HourFile,
        turn_span: RangeInclusive<i64>,
    ) -> Result<RecordBatch> {
        let selected = *turn_span.start().max(self.wanted_ends.start())..=*turn_span.end();
        let time_column = batch.schema().index_of(TIME)?;
        let ends = columns::i64_column(batch, TIME)?;
        let ends: Int64Array = ends.unary(|end| end.saturating_add(hour_file.shift_ns));
        let is_wanted: BooleanArray =
            ends.values().iter().map(|end| Some(selected.contains(end))).collect();
        let mut arrays = batch.columns().to_vec();
        arrays[time_column] = Arc::new(ends);
        let batch = RecordBatch::try_new(batch.schema(), arrays)?;
        if is_wanted.true_count() == batch.num_rows() {
            return Ok(batch);
        }
        Ok(filter_record_batch(&batch, &is_wanted)?)
    }

    /// Makes the columns of the schema from a batch that was read.
    fn read_chunk(
        &self,
        batch: &RecordBatch,
        hour_file: &HourFile,
        counters: Vec<i32>,
        words: &mut [Interner],
    ) -> Result<Vec<ArrayRef>> {
        let rows = batch.num_rows();
        let mut counters = Some(counters);
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(self.schema.fields().len());
        for (field, words) in self.schema.fields().iter().zip(words) {
            let name = field.name().as_str();
            arrays.push(match field.data_type() {
                _ if name == "counter" => {
                    Arc::new(Int32Array::from(counters.take().unwrap_or_default()))
                }
                data_type if ABSENT.contains(&name) => new_null_array(data_type, rows),
                _ if name == "ts" && self.rollup.origins.len() > 1 => {
                    let ends = columns::i64_column(batch, TIME)?;
                    let wall = ends.values().iter().map(|end| end.div_euclid(1000));
                    let wall = TimestampMicrosecondArray::from_iter_values(wall);
                    Arc::new(wall.with_data_type(field.data_type().clone()))
                }
                DataType::Dictionary(..) => {
                    Arc::new(words.intern_batch(columns::word_column(batch, name)?, rows))
                }
                _ => Arc::clone(batch.column_by_name(name).with_context(|| {
                    format!("{} has no column {name}", hour_file.table.file_path().display())
                })?),
            });
        }
        Ok(arrays)
    }

    /// The next rows of the turn.
    fn next_batch(&mut self) -> Result<RecordBatch> {
        let count = self.turn.rows.len().min(BATCH_ROWS);
        let rows: Vec<RowRef> = self.turn.rows.drain(..count).collect();
        let row_indices: Vec<(usize, usize)> =
            rows.iter().map(|row| (row.chunk as usize, row.row as usize)).collect();
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(self.schema.fields().len());
        for (column, field) in self.schema.fields().iter().enumerate() {
            let chunk_arrays: Vec<_> =
                self.turn.chunks.iter().map(|chunk| chunk[column].as_ref()).collect();
            let array = interleave(&chunk_arrays, &row_indices)?;
            let array = match self.turn.dictionaries.get(column) {
                Some(Some(words)) => {
                    let keys: Option<&Int32Array> = array.as_primitive_opt();
                    let keys = keys.context("words without keys")?.clone();
                    Arc::new(DictionaryArray::try_new(keys, Arc::clone(words) as ArrayRef)?)
                }
                _ => self.replace_merged(field.name(), array, &rows),
            };
            arrays.push(array);
        }
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), arrays)?)
    }

    /// Replaces the values of windows of several sets in a column by the merged ones.
    fn replace_merged(&self, name: &str, array: ArrayRef, rows: &[RowRef]) -> ArrayRef {
        let merged = &self.turn.merged;
        if merged.is_empty() || !WINDOW.contains(&name) {
            return array;
        }
        let windows: Vec<_> = rows.iter().map(|row| merged.get(&row.window_key())).collect();
        match name {
            "known_ns" => replace_values::<Int64Type>(array, &windows, |sum| Some(sum.known_ns)),
            "total" => replace_values::<Float64Type>(array, &windows, |sum| sum.total),
            _ => replace_values::<Float32Type>(array, &windows, |sum| Some(sum.running)),
        }
    }
}

/// Replaces the values of rows whose window is merged.
fn replace_values<T: ArrowPrimitiveType>(
    array: ArrayRef,
    windows: &[Option<&MergedWindow>],
    value: impl Fn(&MergedWindow) -> Option<T::Native>,
) -> ArrayRef {
    let Some(stored) = array.as_primitive_opt::<T>() else { return array };
    let values = stored.iter().zip(windows);
    let values = values.map(|(stored, window)| window.map_or(stored, &value));
    Arc::new(values.collect::<PrimitiveArray<T>>())
}

/// The indices in a batch of the columns that [`merge_windows`] needs.
fn window_columns(batch: &RecordBatch) -> Result<Vec<usize>> {
    ["window_ns"].into_iter().chain(WINDOW).map(|name| Ok(batch.schema().index_of(name)?)).collect()
}

/// Finds the windows that are in several files; rows of a set that knows nothing go where another
/// does.
fn merge_windows(
    rows: &mut Vec<RowRef>,
    batches: &[RecordBatch],
    merged: &mut HashMap<(i64, i32), MergedWindow>,
) -> Result<()> {
    let mut dropped: Vec<((i64, i32), u32)> = Vec::new();
    for window in rows.chunk_by(|row, following| row.window_key() == following.window_key()) {
        let (key, sets) =
            (window[0].window_key(), || window.chunk_by(|row, following| row.set == following.set));
        if sets().nth(1).is_none() {
            continue;
        }
        let (mut sum, mut ran, mut length_ns) = (MergedWindow::default(), 0.0, 0);
        for set_row in sets().filter_map(|set| set.first()) {
            let batch = batches.get(set_row.chunk as usize).context("a row without its batch")?;
            let row = set_row.row as usize;
            length_ns = columns::i64_column(batch, "window_ns")?.value(row);
            let Some(total) = nullable_value(columns::f64_column(batch, "total")?, row) else {
                dropped.push((key, set_row.set));
                continue;
            };
            let known_ns = columns::i64_column(batch, "known_ns")?.value(row);
            sum.total = Some(sum.total.unwrap_or(0.0) + total);
            sum.known_ns = sum.known_ns.saturating_add(known_ns);
            ran += f64::from(columns::f32_column(batch, "running")?.value(row)) * known_ns as f64;
        }
        if sum.total.is_none() {
            dropped.retain(|(window_key, _)| *window_key != key);
            continue;
        }
        sum.running = if sum.known_ns > 0 { (ran / sum.known_ns as f64) as f32 } else { 0.0 };
        sum.known_ns = sum.known_ns.min(length_ns);
        merged.insert(key, sum);
    }
    if !dropped.is_empty() {
        let dropped: HashSet<_> = dropped.into_iter().collect();
        rows.retain(|row| !dropped.contains(&(row.window_key(), row.set)));
    }
    Ok(())
}

impl Iterator for RollupScan {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.turn.rows.is_empty() {
            match self.read_next_turn() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => {
                    self.next_turn_ns = None;
                    let path = self.rollup.path.display();
                    return Some(Err(error.context(format!("cannot read {path}"))));
                }
            }
        }
        Some(self.next_batch())
    }
}
