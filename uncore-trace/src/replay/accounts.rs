//! Reads what devices count themselves from the table `accounts`.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use arrow::array::RecordBatch;

use super::rows::TableForm;
use crate::discover::accounts::{Account, AccountSource, IoDirection, Unit};
use crate::entries::{Accounted, LogEntry};
use crate::schema::accounts;
use crate::schema::columns::{self, nullable_value};

/// The table's form.
pub(super) const FORM: TableForm<Accounted> = TableForm {
    table: &accounts::TABLE,
    columns: &[
        "mono_ns",
        "read_ns",
        "bdf",
        "source",
        "name",
        "direction",
        "unit",
        "pid",
        "client",
        "value",
    ],
    decode: decode_accounts,
    entry: |accounted| LogEntry::Account(accounted),
};

fn decode_accounts(batch: &RecordBatch) -> Result<Vec<(u64, Accounted)>> {
    let (end, time) =
        (columns::i64_column(batch, "mono_ns")?, columns::i64_column(batch, "read_ns")?);
    let (bdf, source) =
        (columns::word_column(batch, "bdf")?, columns::word_column(batch, "source")?);
    let (name, unit) = (columns::word_column(batch, "name")?, columns::word_column(batch, "unit")?);
    let (direction, pid) =
        (columns::word_column(batch, "direction")?, columns::i32_column(batch, "pid")?);
    let (client, value) =
        (columns::bits_column(batch, "client")?, columns::bits_column(batch, "value")?);
    let row = |row| {
        let unknown = |column: &str| format!("the table accounts has an unknown {column}");
        let account = Account {
            function: bdf.get(row).unwrap_or_default().parse().with_context(|| unknown("bdf"))?,
            source: source
                .get(row)
                .and_then(AccountSource::from_name)
                .with_context(|| unknown("source"))?,
            name: Arc::from(name.get(row).unwrap_or_default()),
            direction: direction.get(row).and_then(IoDirection::from_name),
            unit: unit.get(row).and_then(Unit::from_name).with_context(|| unknown("unit"))?,
            pid: nullable_value(pid, row).map(i32::cast_unsigned),
            client: client.get(row),
        };
        let (time, value) = (time.value(row) as u64, value.get(row));
        Ok((end.value(row) as u64, Accounted { time, account, value }))
    };
    (0..batch.num_rows()).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_accounts_are_decoded_to_their_entries() {
        let mut rows = accounts::Builder::default();
        let row = accounts::Row {
            mono_ns: 100,
            read_ns: 101,
            bdf: "0002:01:00.0",
            source: "net",
            name: "eth0/rx_bytes",
            direction: Some("read"),
            unit: "bytes",
            pid: None,
            client: None,
            value: Some(u64::MAX),
        };
        rows.append(&row);
        let (source, unit, pid) = ("kfd", "resident_bytes", Some(7));
        rows.append(&accounts::Row { source, unit, pid, direction: None, value: None, ..row });
        let entries = decode_accounts(&rows.finish()).unwrap();
        let account = Account {
            function: "0002:01:00.0".parse().unwrap(),
            source: AccountSource::Net,
            name: "eth0/rx_bytes".into(),
            direction: Some(IoDirection::Read),
            unit: Unit::Bytes,
            pid: None,
            client: None,
        };
        let (source, unit, pid) = (AccountSource::Kfd, Unit::Resident, Some(7));
        let other = Account { source, unit, pid, direction: None, ..account.clone() };
        assert_eq!(
            entries,
            [
                (100, Accounted { time: 101, account, value: Some(u64::MAX) }),
                (100, Accounted { time: 101, account: other, value: None }),
            ]
        );
    }

    #[test]
    fn every_source_and_unit_is_decoded_and_others_are_refused() {
        for source in AccountSource::ALL {
            assert_eq!(AccountSource::from_name(source.source_name()), Some(source));
        }
        for unit in Unit::ALL {
            assert_eq!(Unit::from_name(unit.unit_name()), Some(unit));
        }
        let mut rows = accounts::Builder::default();
        rows.append(&accounts::Row { source: "x", unit: "ns", bdf: "0:1.0", ..Default::default() });
        let error = decode_accounts(&rows.finish()).unwrap_err().to_string();
        assert!(error.starts_with("the table accounts has an unknown"), "{error}");
    }
}
