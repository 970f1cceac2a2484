//! Typed access to the columns of a batch from a table reader.
//!
//! Guarantees: a missing column or a wrong type is an error that names the column. An invalid
//! dictionary key reads as null. So a damaged file cannot cause a panic here.

use anyhow::{Context as _, Result};
use arrow::array::{
    Array, DictionaryArray, Float32Array, Float64Array, Int32Array, Int64Array, RecordBatch,
    StringArray,
};
use arrow::datatypes::Int32Type;

/// The column `name` as the array type `A`.
pub fn typed_column<'a, A: 'static>(batch: &'a RecordBatch, name: &str) -> Result<&'a A> {
    batch
        .column_by_name(name)
        .with_context(|| format!("no column {name}"))?
        .as_any()
        .downcast_ref::<A>()
        .with_context(|| format!("column {name} has another type than this version writes"))
}

/// An `int64` column.
pub fn i64_column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a Int64Array> {
    typed_column(batch, name)
}

/// An `int32` column.
pub fn i32_column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a Int32Array> {
    typed_column(batch, name)
}

/// An `int64` column with the bits of unsigned numbers, see [`super::column_type::Bits`].
#[derive(Debug, Clone, Copy)]
pub struct BitsColumn<'a>(&'a Int64Array);

/// An `int64` column with the bits of unsigned numbers.
pub fn bits_column<'a>(batch: &'a RecordBatch, name: &str) -> Result<BitsColumn<'a>> {
    typed_column(batch, name).map(BitsColumn)
}

impl BitsColumn<'_> {
    /// The number in a row; `None` if it is null.
    #[inline]
    pub fn get(&self, row: usize) -> Option<u64> {
        nullable_value(self.0, row).map(i64::cast_unsigned)
    }

    /// The number in a row; 0 if it is null.
    pub fn value_or_zero(&self, row: usize) -> u64 {
        self.get(row).unwrap_or(0)
    }
}

/// A `float64` column.
pub fn f64_column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a Float64Array> {
    typed_column(batch, name)
}

/// A `float32` column.
pub fn f32_column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a Float32Array> {
    typed_column(batch, name)
}

/// A plain string column.
pub fn text_column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a StringArray> {
    typed_column(batch, name)
}

/// A dictionary column of strings.
#[derive(Debug, Clone, Copy)]
pub struct WordColumn<'a> {
    keys: &'a Int32Array,
    values: &'a StringArray,
}

/// A dictionary column of strings.
pub fn word_column<'a>(batch: &'a RecordBatch, name: &str) -> Result<WordColumn<'a>> {
    let array: &DictionaryArray<Int32Type> = typed_column(batch, name)?;
    let values = array
        .values()
        .as_any()
        .downcast_ref::<StringArray>()
        .with_context(|| format!("column {name} is not of strings"))?;
    Ok(WordColumn { keys: array.keys(), values })
}

impl<'a> WordColumn<'a> {
    /// The array that its keys refer to.
    pub const fn dictionary_values(&self) -> &'a StringArray {
        self.values
    }

    /// The string in a row; `None` if it is null.
    #[inline]
    pub fn get(&self, row: usize) -> Option<&'a str> {
        let key = usize::try_from(self.dictionary_key(row)).ok()?;
        (key < self.values.len() && self.values.is_valid(key)).then(|| self.values.value(key))
    }

    /// The dictionary key of a row; -1 if it is null. In one batch, equal keys mean equal strings.
    #[inline]
    pub fn dictionary_key(&self, row: usize) -> i32 {
        if self.keys.is_valid(row) { self.keys.value(row) } else { -1 }
    }
}

/// The value of a row of a nullable primitive column.
#[inline]
pub fn nullable_value<T: arrow::datatypes::ArrowPrimitiveType>(
    array: &arrow::array::PrimitiveArray<T>,
    row: usize,
) -> Option<T::Native> {
    array.is_valid(row).then(|| array.value(row))
}
