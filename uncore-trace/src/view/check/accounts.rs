//! Verifies the rows of `accounts`: known words, and sums that do not decrease while an account
//! exists.

use std::collections::BTreeMap;

use anyhow::Result;
use arrow::array::RecordBatch;

use super::{CheckOutcome, FaultTally, find_fault};
use crate::schema::accounts::{AccountSource, TABLE, Unit};
use crate::schema::columns::{bits_column, i32_column, i64_column, nullable_value, word_column};
use crate::tables::reader::Recording;

/// Function, source, name, direction, unit, process and client.
type CheckedAccount = ([String; 5], Option<i32>, Option<u64>);

/// Verifies the rows; `None` if the recording has none.
pub(super) fn verify_account_rows(recording: &Recording) -> Option<CheckOutcome> {
    let mut last_values = BTreeMap::new();
    FaultTally::rows_outcome(recording, &TABLE, &TABLE.column_names(), |batch, number, tally| {
        examine_batch(batch, number, &mut last_values, tally)
    })
}

fn examine_batch(
    batch: &RecordBatch,
    number: u64,
    last_values: &mut BTreeMap<CheckedAccount, (i64, Option<u64>)>,
    tally: &mut FaultTally,
) -> Result<()> {
    let words = |name| word_column(batch, name);
    let names =
        [words("bdf")?, words("source")?, words("name")?, words("direction")?, words("unit")?];
    let (pid, client) = (i32_column(batch, "pid")?, bits_column(batch, "client")?);
    let (read, value) = (i64_column(batch, "read_ns")?, bits_column(batch, "value")?);
    for row in 0..batch.num_rows() {
        let key = names.map(|column| column.get(row).unwrap_or_default().to_owned());
        let [_, source, name, _, unit] = &key;
        let (source, unit) = (AccountSource::from_name(source), Unit::from_name(unit));
        let name = name.clone();
        let (time_ns, value) = (read.value(row), value.get(row));
        let key = (key, nullable_value(pid, row), client.get(row));
        let previous = last_values.insert(key, (time_ns, value));
        let previous_value = previous.and_then(|(_, previous_value)| previous_value);
        let is_less = previous_value.zip(value).is_some_and(|(previous, now)| now < previous);
        tally.examine_item(|| {
            let wrong = find_fault([
                (source.is_none() || unit.is_none(), "has an unknown source or unit"),
                (
                    previous.is_some_and(|(previous_ns, _)| time_ns < previous_ns),
                    "was read before the row above it",
                ),
                (unit.is_some_and(Unit::is_sum) && is_less, "is less than before"),
            ])?;
            Some(format!("row {} of {name:?} {wrong}", number + row as u64))
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::accounts::{Builder, Row};

    /// What is wrong with rows of these times and values.
    fn fault_of_rows(unit: &str, rows: &[(i64, Option<u64>)]) -> Option<String> {
        let mut builder = Builder::default();
        for (read_ns, value) in rows {
            let (bdf, source, name) = ("0002:01:00.0", "net", "eth0/rx_bytes");
            let row = Row { read_ns: *read_ns, bdf, source, name, unit, ..Row::default() };
            builder.append(&Row { value: *value, ..row });
            // Another account between.
            builder.append(&Row { value: Some(0), pid: Some(7), ..row });
        }
        let mut tally = FaultTally::default();
        examine_batch(&builder.finish(), 0, &mut BTreeMap::new(), &mut tally).unwrap();
        assert_eq!(tally.examined, 2 * rows.len() as u64);
        tally.first_fault
    }

    #[test]
    fn sums_do_not_decrease_while_an_account_exists() {
        assert_eq!(
            fault_of_rows("bytes", &[(1, Some(5)), (2, Some(5)), (3, Some(u64::MAX))]),
            None
        );
        assert_eq!(fault_of_rows("bytes", &[(1, Some(5)), (2, None), (2, Some(1))]), None);
        assert_eq!(fault_of_rows("resident_bytes", &[(1, Some(5)), (2, Some(1))]), None);
        let less = fault_of_rows("bytes", &[(1, Some(5)), (2, Some(4))]);
        assert_eq!(less.as_deref(), Some("row 2 of \"eth0/rx_bytes\" is less than before"));
        let older = fault_of_rows("bytes", &[(2, Some(5)), (1, Some(6))]).unwrap();
        assert!(older.ends_with("was read before the row above it"), "{older}");
        let unknown = fault_of_rows("miles", &[(1, Some(5))]).unwrap();
        assert!(unknown.ends_with("has an unknown source or unit"), "{unknown}");
    }
}
