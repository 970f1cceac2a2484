//! The kinds of columns, and the macro that turns a list of columns into a table.
//!
//! Guarantees: the row struct, the Arrow schema, the builder and the Parquet encodings of a table
//! come from one list, so they cannot disagree. A column is nullable if and only if its kind is
//! [`Null`].

#![expect(single_use_lifetimes, reason = "`impl Trait` needs lifetimes with names")]

use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::sync::Arc;

use arrow::array::{ArrayRef, PrimitiveBuilder, StringBuilder, StringDictionaryBuilder};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    TimeUnit, TimestampMicrosecondType,
};

/// How a column is encoded before zstd. Only encodings that every reader supports are used: Spark
/// up to 4.0 has no `BYTE_STREAM_SPLIT` (`VectorizedColumnReader.getValuesReader`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Parquet's dictionary, for few distinct values.
    Dict,
    /// `DELTA_BINARY_PACKED`, for integers that grow steadily. Not in `fabric` and `rollup`, which
    /// fastparquet can read too: it takes deltas of more than 28 bits for other values (2026.9).
    Delta,
    /// `PLAIN`, for short columns, or if zstd alone is best.
    Plain,
}

/// The type of a column in Rust and in Arrow, and how values are appended.
pub trait ColumnType {
    /// The type of a value in a row.
    type Value<'a>;
    /// The builder of the column.
    type Builder: ColumnBuilder;
    /// Whether the column may hold nulls.
    const NULLABLE: bool = false;
    /// The Arrow type.
    fn data_type() -> DataType;
    /// Appends one value.
    fn append(builder: &mut Self::Builder, value: Self::Value<'_>);
    /// Appends values or nulls, in order.
    fn append_options<'a>(
        builder: &mut Self::Builder,
        values: impl Iterator<Item = Option<Self::Value<'a>>>,
    ) {
        let mut nulls = 0;
        for value in values {
            let Some(value) = value else {
                nulls += 1;
                continue;
            };
            if nulls > 0 {
                builder.append_nulls(mem::take(&mut nulls));
            }
            Self::append(builder, value);
        }
        if nulls > 0 {
            builder.append_nulls(nulls);
        }
    }
    /// Appends values, in order.
    fn append_all<'a>(builder: &mut Self::Builder, values: impl Iterator<Item = Self::Value<'a>>) {
        for value in values {
            Self::append(builder, value);
        }
    }
    /// Takes the array out, leaving the builder empty.
    fn finish(builder: &mut Self::Builder) -> ArrayRef {
        builder.finish_array()
    }
}

/// What builds the array of a column.
pub trait ColumnBuilder: Default {
    /// Appends nulls.
    fn append_nulls(&mut self, count: usize);
    /// Takes the array out, leaving the builder empty.
    fn finish_array(&mut self) -> ArrayRef;
}

impl<T: ArrowPrimitiveType> ColumnBuilder for PrimitiveBuilder<T> {
    fn append_nulls(&mut self, count: usize) {
        self.append_nulls(count);
    }
    fn finish_array(&mut self) -> ArrayRef {
        Arc::new(self.finish())
    }
}

impl ColumnBuilder for StringBuilder {
    fn append_nulls(&mut self, count: usize) {
        self.append_nulls(count);
    }
    fn finish_array(&mut self) -> ArrayRef {
        Arc::new(self.finish())
    }
}

/// A primitive number column.
#[derive(Debug)]
pub struct Number<T>(PhantomData<T>);

impl<T: ArrowPrimitiveType + fmt::Debug> ColumnType for Number<T> {
    type Value<'a> = T::Native;
    type Builder = PrimitiveBuilder<T>;
    fn data_type() -> DataType {
        T::DATA_TYPE
    }
    fn append(builder: &mut Self::Builder, value: T::Native) {
        builder.append_value(value);
    }
}

/// `int16`
pub type I16 = Number<Int16Type>;
/// `int32`
pub type I32 = Number<Int32Type>;
/// `int64`
pub type I64 = Number<Int64Type>;
/// `float32`
pub type F32 = Number<Float32Type>;
/// `float64`
pub type F64 = Number<Float64Type>;

/// `int64` with the 64 bits of an unsigned number (two's complement), because not every reader
/// supports unsigned 64-bit numbers. Values below 2^63 are the same in both.
#[derive(Debug)]
pub struct Bits;

impl ColumnType for Bits {
    type Value<'a> = u64;
    type Builder = PrimitiveBuilder<Int64Type>;
    fn data_type() -> DataType {
        DataType::Int64
    }
    fn append(builder: &mut Self::Builder, value: u64) {
        builder.append_value(value.cast_signed());
    }
}

/// `timestamp(us, UTC)`, from nanoseconds since 1970, rounded down.
#[derive(Debug)]
pub struct Time;

impl ColumnType for Time {
    type Value<'a> = i64;
    type Builder = PrimitiveBuilder<TimestampMicrosecondType>;
    fn data_type() -> DataType {
        DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
    }
    fn append(builder: &mut Self::Builder, value: i64) {
        builder.append_value(value.div_euclid(1000));
    }
    fn finish(builder: &mut Self::Builder) -> ArrayRef {
        Arc::new(builder.finish().with_timezone("UTC"))
    }
}

/// A string with few distinct values: Arrow `Dictionary(Int32, Utf8)`.
#[derive(Debug)]
pub struct Word;

/// The builder of a [`Word`] column. It appends a run of equal words at once: a dictionary hashes
/// each lookup, and most words equal that of the previous row.
#[derive(Default)]
pub struct WordBuilder {
    words: StringDictionaryBuilder<Int32Type>,
    /// The word of the current run.
    word: String,
    /// Length of the current run, which is not in `words` yet.
    run: usize,
}

impl fmt::Debug for WordBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WordBuilder").field("run", &self.run).finish_non_exhaustive()
    }
}

impl WordBuilder {
    fn append(&mut self, word: &str, rows: usize) {
        if self.word != word {
            self.end_run();
            self.word.clear();
            self.word.push_str(word);
        }
        self.run += rows;
    }

    fn end_run(&mut self) {
        if self.run > 0 {
            self.words.append_values(&self.word, mem::take(&mut self.run));
        }
    }
}

impl ColumnBuilder for WordBuilder {
    fn append_nulls(&mut self, count: usize) {
        self.end_run();
        self.words.append_nulls(count);
    }
    fn finish_array(&mut self) -> ArrayRef {
        self.end_run();
        Arc::new(self.words.finish())
    }
}

impl ColumnType for Word {
    type Value<'a> = &'a str;
    type Builder = WordBuilder;
    fn data_type() -> DataType {
        DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
    }
    fn append(builder: &mut WordBuilder, value: &str) {
        builder.append(value, 1);
    }
    /// A string at the same address as the previous one is not compared.
    fn append_options<'a>(
        builder: &mut WordBuilder,
        values: impl Iterator<Item = Option<&'a str>>,
    ) {
        let mut end_run = |value: Option<&str>, rows| match value {
            Some(word) => builder.append(word, rows),
            None => builder.append_nulls(rows),
        };
        let mut run: Option<(Option<&str>, usize)> = None;
        for value in values {
            match &mut run {
                Some((current, rows)) if is_same(*current, value) => *rows += 1,
                _ => {
                    if let Some((previous, rows)) = run.replace((value, 1)) {
                        end_run(previous, rows);
                    }
                }
            }
        }
        if let Some((final_value, rows)) = run {
            end_run(final_value, rows);
        }
    }
    fn append_all<'a>(builder: &mut WordBuilder, values: impl Iterator<Item = &'a str>) {
        Self::append_options(builder, values.map(Some));
    }
}

/// Whether both are the same string in memory, or both are `None`.
fn is_same(first_text: Option<&str>, second_text: Option<&str>) -> bool {
    match (first_text, second_text) {
        (Some(a), Some(b)) => std::ptr::eq(a, b),
        (None, None) => true,
        _ => false,
    }
}

/// A string that rarely repeats.
#[derive(Debug)]
pub struct Text;

impl ColumnType for Text {
    type Value<'a> = &'a str;
    type Builder = StringBuilder;
    fn data_type() -> DataType {
        DataType::Utf8
    }
    fn append(builder: &mut StringBuilder, value: &str) {
        builder.append_value(value);
    }
}

/// A bit pattern as text, e.g. `0x1f`.
#[derive(Debug)]
pub struct Hex;

impl ColumnType for Hex {
    type Value<'a> = u64;
    type Builder = StringBuilder;
    fn data_type() -> DataType {
        DataType::Utf8
    }
    fn append(builder: &mut StringBuilder, value: u64) {
        builder.append_value(format!("{value:#x}"));
    }
}

/// A column of kind `K` that may hold nulls.
#[derive(Debug)]
pub struct Null<K>(PhantomData<K>);

impl<K: ColumnType> ColumnType for Null<K> {
    type Value<'a> = Option<K::Value<'a>>;
    type Builder = K::Builder;
    const NULLABLE: bool = true;
    fn data_type() -> DataType {
        K::data_type()
    }
    fn append(builder: &mut K::Builder, value: Option<K::Value<'_>>) {
        match value {
            Some(value) => K::append(builder, value),
            None => builder.append_nulls(1),
        }
    }
    fn append_options<'a>(
        builder: &mut K::Builder,
        values: impl Iterator<Item = Option<Self::Value<'a>>>,
    ) {
        K::append_options(builder, values.map(Option::flatten));
    }
    fn append_all<'a>(builder: &mut K::Builder, values: impl Iterator<Item = Self::Value<'a>>) {
        K::append_options(builder, values);
    }
    fn finish(builder: &mut K::Builder) -> ArrayRef {
        K::finish(builder)
    }
}

/// Makes a table module's `Row`, `schema()`, `Builder` and `TABLE` from its list of columns.
///
/// Each line is `name: kind => encoding, "documentation";`. `sorted by` names the columns by which
/// the rows of a segment are sorted; rows with equal values keep their order of arrival. `sorted in
/// row groups by` sorts the rows of each row group of every file. `in order of` names a column that
/// never decreases from one row of the table to the next. `later` names the columns that older
/// files of the same version lack. The next line says which time a row belongs to
/// ([`super::row_time::RowTime`]). A line `origin;` before the columns stands for those of
/// [`super::origin`], with which tables are read for many machines together.
macro_rules! table {
    (
        $name:literal, $about:literal, sorted by [] $(, later [$($later:literal),+])?;
        $when:ident $(($($when_columns:tt)+))? $({ $($when_fields:tt)+ })?;
        origin;
        $($columns:tt)+
    ) => {
        table! {
            $name, $about, sorted by [] $(, later [$($later),+])?;
            $when $(($($when_columns)+))? $({ $($when_fields)+ })?;
            host: Word => Dict, "Host name.";
            boot_id: Word => Dict, "Random id of the boot (`/proc/sys/kernel/random/boot_id`): \
                times of `CLOCK_MONOTONIC` and ids compare within one boot.";
            cluster: Null<Word> => Dict, "Cluster the host is in, as `--cluster` named it; null where it was not named.";
            $($columns)+
        }
    };
    (
        $name:literal, $about:literal $(, sorted by [$($sort_column:literal),*])?
        $(, sorted in row groups by [$($group_sort:literal),+])?
        $(, in order of $order:literal)?
        $(, later [$($later:literal),+])?;
        $when:ident $(($($when_columns:tt)+))? $({ $($when_fields:tt)+ })?;
        $($field:ident: $column_type:ty => $encoding:ident, $doc:literal;)+
    ) => {
        #[doc = concat!("One row of `", $name, "`: ", $about)]
        #[derive(Debug, Clone, Copy, PartialEq, Default)]
        pub struct Row<'a> {
            $(
                #[doc = $doc]
                pub $field: <$column_type as $crate::schema::column_type::ColumnType>::Value<'a>,
            )+
        }

        #[doc = concat!("The Arrow schema of `", $name, "`.")]
        pub fn schema() -> arrow::datatypes::SchemaRef {
            use $crate::schema::column_type::ColumnType;
            std::sync::Arc::new(arrow::datatypes::Schema::new(vec![$(
                arrow::datatypes::Field::new(
                    stringify!($field),
                    <$column_type>::data_type(),
                    <$column_type>::NULLABLE,
                ),
            )+]))
        }

        #[doc = concat!("Collects rows of `", $name, "` into a record batch.")]
        #[derive(Default)]
        pub struct Builder {
            rows: usize,
            $($field: <$column_type as $crate::schema::column_type::ColumnType>::Builder,)+
        }

        impl std::fmt::Debug for Builder {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct($name).field("rows", &self.rows).finish_non_exhaustive()
            }
        }

        impl Builder {
            /// Adds a row.
            pub fn append(&mut self, row: &Row<'_>) {
                use $crate::schema::column_type::ColumnType;
                $(<$column_type>::append(&mut self.$field, row.$field);)+
                self.rows += 1;
            }

            /// Adds rows, column by column, so that repeated strings are looked up once.
            pub fn append_all(&mut self, rows: &[Row<'_>]) {
                use $crate::schema::column_type::ColumnType;
                $(<$column_type>::append_all(&mut self.$field, rows.iter().map(|row| row.$field));)+
                self.rows += rows.len();
            }

            /// Number of rows since the last `finish`.
            pub fn len(&self) -> usize {
                self.rows
            }

            /// Whether there are no rows.
            pub fn is_empty(&self) -> bool {
                self.rows == 0
            }

            /// Returns the rows as a batch, and clears the builder.
            pub fn finish(&mut self) -> arrow::array::RecordBatch {
                use $crate::schema::column_type::ColumnType;
                self.rows = 0;
                let columns = vec![$(<$column_type>::finish(&mut self.$field),)+];
                // The schema and the columns come from one list, and `append` fills every column,
                // so `try_new` cannot fail.
                arrow::array::RecordBatch::try_new(schema(), columns)
                    .unwrap_or_else(|error| unreachable!("{}: {error}", $name))
            }
        }

        #[doc = concat!("The registry entry of `", $name, "`.")]
        pub static TABLE: $crate::schema::TableDef = $crate::schema::TableDef {
            name: $name,
            doc: $about,
            schema,
            encodings: &[$(
                (stringify!($field), $crate::schema::column_type::Encoding::$encoding),
            )+],
            column_docs: &[$((stringify!($field), $doc),)+],
            sort_columns: &[$($($sort_column),*)? $($($group_sort),+)?],
            sorts_groups: !<[&str]>::is_empty(&[$($($group_sort),+)?]),
            order: &[$($order)?],
            later: &[$($($later),+)?],
            when: $crate::schema::row_time::RowTime::$when
                $(($($when_columns)+))? $({ $($when_fields)+ })?,
        };
    };
}
pub(crate) use table;

#[cfg(test)]
mod tests {
    use arrow::array::{Array as _, AsArray as _, StringArray};
    use arrow::datatypes::TimestampMicrosecondType;

    use super::*;

    #[test]
    fn runs_of_one_string_are_rows_like_any_others() {
        let (here, there) = ("a".to_owned(), "a".to_owned());
        let values = [None, Some(&*here), Some(&*here), Some(&*there), Some("b"), None, None];
        let single = [Some(""), Some("b"), None, Some("b"), Some("b"), None, Some("a")];
        let mut builder = <Null<Word> as ColumnType>::Builder::default();
        Null::<Word>::append_all(&mut builder, values.into_iter());
        Word::append_all(&mut builder, values.into_iter().flatten());
        for value in single {
            Null::<Word>::append(&mut builder, value);
        }
        let array = Word::finish(&mut builder);
        let words = array.as_dictionary::<Int32Type>().downcast_dict::<StringArray>().unwrap();
        let expected = values.into_iter().chain(values.into_iter().flatten().map(Some));
        assert!(words.into_iter().eq(expected.chain(single)), "{array:?}");
        assert_eq!(words.values().len(), 3);
        // The next batch starts within a run.
        Word::append(&mut builder, "a");
        let array = Word::finish(&mut builder);
        let words = array.as_dictionary::<Int32Type>().downcast_dict::<StringArray>().unwrap();
        assert!(words.into_iter().eq([Some("a")]), "{array:?}");
    }

    #[test]
    fn all_64_bits_are_kept() {
        let mut builder = <Bits as ColumnType>::Builder::default();
        for value in [0, 1, u64::MAX / 2, u64::MAX / 2 + 1, u64::MAX] {
            Bits::append(&mut builder, value);
        }
        let array = Bits::finish(&mut builder);
        let signed = array.as_primitive::<Int64Type>().values();
        assert_eq!(signed[..], [0, 1, i64::MAX, i64::MIN, -1]);
        let again: Vec<u64> = signed.iter().map(|value| value.cast_unsigned()).collect();
        assert_eq!(again, [0, 1, u64::MAX / 2, u64::MAX / 2 + 1, u64::MAX]);
    }

    #[test]
    fn a_bit_pattern_is_hexadecimal() {
        let mut builder = <Hex as ColumnType>::Builder::default();
        for value in [0, 0x1f, u64::MAX] {
            Hex::append(&mut builder, value);
        }
        let array = Hex::finish(&mut builder);
        let texts: Vec<_> = array.as_string::<i32>().iter().flatten().collect();
        assert_eq!(texts, ["0x0", "0x1f", "0xffffffffffffffff"]);
    }

    #[test]
    fn times_are_whole_microseconds_rounded_down() {
        let mut builder = <Time as ColumnType>::Builder::default();
        for ns in [1_700_000_000_123_456_789, 999, 0, -1] {
            Time::append(&mut builder, ns);
        }
        let array = Time::finish(&mut builder);
        let times = array.as_primitive::<TimestampMicrosecondType>().values();
        assert_eq!(times[..], [1_700_000_000_123_456, 0, 0, -1]);
    }
}
