//! Which marks are taken, which are rejected, and where they are stored.

use super::*;

const SECOND: i64 = 1_000_000_000;

fn wish(act: MarkAct, text: &str, mono_ns: i64) -> MarkRequest<'_> {
    MarkRequest { act, text, id: None, mono_ns, source: "command", pid: Some(7) }
}

/// The list in the metadata.
fn listed(book: &mut MarkBook) -> ListedMarks {
    let mut pairs = BTreeMap::new();
    book.has_changed = true;
    book.note_in_metadata(&mut pairs).unwrap();
    ListedMarks::from_metadata(&pairs).unwrap()
}

/// Names and times.
fn brief(marks: &[Mark]) -> Vec<(&str, i64, Option<i64>)> {
    marks.iter().map(|mark| (mark.text.as_str(), mark.mono_ns, mark.end_ns)).collect()
}

#[test]
fn a_time_is_within_the_recording_and_not_in_the_future() {
    let mut book = MarkBook::new(MarkStorage::Table);
    book.take_mark(wish(MarkAct::Instant, "early", 5), 50).unwrap();
    book.take_mark(wish(MarkAct::Begin, "span", 6), 50).unwrap();
    book.begin_recording(100);
    book.take_mark(wish(MarkAct::Instant, "late", 900), 200).unwrap();
    book.take_mark(wish(MarkAct::Instant, "before", -3), 200).unwrap();
    book.take_mark(wish(MarkAct::End, "span", 7), 300).unwrap();
    let expected = [
        ("early", 100, None),
        ("late", 200, None),
        ("before", 100, None),
        ("span", 100, Some(100)),
    ];
    assert_eq!(brief(&book.take_rows()), expected);
    assert_eq!(book.take_rows(), []);
    let all = listed(&mut book);
    assert_eq!(all.marks[1].end_ns, Some(100));
    assert_eq!((all.marks.len(), all.left_out), (4, 0));
}

#[test]
fn an_end_is_that_of_the_span_begun_last_or_of_the_one_with_its_id() {
    let mut book = MarkBook::new(MarkStorage::Table);
    let with = |act, id, time| MarkRequest { id, ..wish(act, "it", time) };
    for (act, id, time) in [
        (MarkAct::Begin, None, 1),
        (MarkAct::Begin, None, 2),
        (MarkAct::Begin, Some("a"), 3),
        (MarkAct::Begin, Some("b"), 4),
        (MarkAct::End, Some("a"), 5),
        (MarkAct::End, None, 6),
        (MarkAct::End, None, 7),
    ] {
        book.take_mark(with(act, id, time), time).unwrap();
    }
    assert_eq!(book.take_mark(with(MarkAct::End, None, 8), 8), Err(MarkRefusal::NotBegun));
    let ended = [("it", 3, Some(5)), ("it", 2, Some(6)), ("it", 1, Some(7))];
    assert_eq!(brief(&book.take_rows()), ended);
    // The span "b" is open.
    book.close_spans();
    assert_eq!(brief(&book.take_rows()), [("it", 4, None)]);
    assert_eq!(listed(&mut book).marks[3].end_ns, None);
    assert!(book.take_lost().is_empty());
}

#[test]
fn what_the_metadata_have_no_room_for_is_in_the_table_or_refused() {
    for (room, taken, left_out) in
        [(MarkStorage::Table, 3000, 2000), (MarkStorage::Metadata, 1000, 0)]
    {
        let mut book = MarkBook::new(room);
        let results: Vec<_> = (0..3000)
            .map(|at| book.take_mark(wish(MarkAct::Instant, "x", at), at * SECOND / 100))
            .collect();
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), taken);
        let all = listed(&mut book);
        assert_eq!((all.marks.len(), all.left_out), (LISTED_MARKS, left_out));
        assert_eq!(book.take_rows().len(), if room == MarkStorage::Table { 3000 } else { 0 });
        let lost = (room == MarkStorage::Metadata).then_some((MarkRefusal::NoRoom, 2000));
        assert_eq!(book.take_lost(), lost.into_iter().collect());
        assert!(book.take_lost().is_empty());
    }
}

#[test]
fn the_metadata_stay_small_whatever_the_texts_are() {
    let mut book = MarkBook::new(MarkStorage::Table);
    // JSON takes six bytes for each byte of this text.
    let text = "\u{1}".repeat(TEXT_BYTES);
    for at in 0..900 {
        book.take_mark(wish(MarkAct::Begin, &text, at), at).unwrap();
    }
    for at in 0..900 {
        book.take_mark(wish(MarkAct::End, &text, i64::MAX - at), i64::MAX).unwrap();
    }
    let all = listed(&mut book);
    let json = serde_json::to_string(&all.marks).unwrap();
    assert!((LISTED_BYTES * 9 / 10..=LISTED_BYTES).contains(&json.len()), "{}", json.len());
    assert_eq!(all.marks.len() as u64 + all.left_out, 900);
}

#[test]
fn a_flood_is_refused_and_counted() {
    let mut book = MarkBook::new(MarkStorage::Table);
    for at in 0..1500 {
        let taken = book.take_mark(wish(MarkAct::Instant, "x", at), at);
        assert_eq!(taken.is_ok(), at < 1000, "{at}: {taken:?}");
    }
    book.take_mark(wish(MarkAct::Instant, "x", SECOND), SECOND).unwrap();
    assert_eq!(book.take_lost(), [(MarkRefusal::TooMany, 500)].into());
    let mut book = MarkBook::new(MarkStorage::Table);
    for at in 0..1500 {
        let taken = book.take_mark(wish(MarkAct::Begin, "x", at), at * SECOND / 100);
        assert_eq!(taken.is_ok(), at < 1000, "{at}: {taken:?}");
    }
    // An end needs no room.
    book.take_mark(wish(MarkAct::End, "x", 0), 0).unwrap();
    assert_eq!(book.take_lost(), [(MarkRefusal::TooManyOpen, 500)].into());
}

#[test]
fn texts_have_a_length() {
    let mut book = MarkBook::new(MarkStorage::Table);
    let long = "é".repeat(TEXT_BYTES / 2);
    for act in [MarkAct::Instant, MarkAct::Begin, MarkAct::End] {
        book.take_mark(wish(act, &long, 0), 0).unwrap();
        assert_eq!(book.take_mark(wish(act, &format!("{long}x"), 0), 0), Err(MarkRefusal::TooLong));
        assert_eq!(book.take_mark(wish(act, "", 0), 0), Err(MarkRefusal::Empty));
    }
    let mut stream = MarkBook::new(MarkStorage::Nowhere);
    assert_eq!(stream.take_mark(wish(MarkAct::Instant, "x", 0), 0), Err(MarkRefusal::Stream));
    assert!(stream.take_lost().is_empty() && !stream.has_changed);
}

proptest::proptest! {
    /// For any input, each mark is in the table once and ends after it began.
    #[test]
    fn each_mark_is_a_row(requests in proptest::collection::vec((0..3_usize, "[ab]{0,2}"), 0..60)) {
        let mut book = MarkBook::new(MarkStorage::Table);
        book.begin_recording(0);
        let (mut begun, mut now) = (0, 0);
        for (act, text) in &requests {
            now += 1;
            let act = [MarkAct::Instant, MarkAct::Begin, MarkAct::End][*act];
            let taken = book.take_mark(wish(act, text, now), now).is_ok();
            begun += usize::from(taken && act != MarkAct::End);
        }
        book.close_spans();
        let rows = book.take_rows();
        assert_eq!(rows.len(), begun);
        for row in &rows {
            assert!(row.end_ns.is_none_or(|end| end > row.mono_ns && row.kind == MarkKind::Span));
        }
        let mut all = listed(&mut book).marks;
        all.sort_by_key(|mark| mark.mono_ns);
        let mut rows = rows;
        rows.sort_by_key(|mark| mark.mono_ns);
        assert_eq!(all, rows);
    }
}
