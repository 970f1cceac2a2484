//! Screens of a machine with four links and hostile names, drawn into a buffer.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::*;
use crate::schema::fabric;
use crate::schema::link::Direction;
use crate::schema::link::{Link, LinkCounter, PeakRate, PeakSource};
use crate::tables::writer::TablePiece;
use crate::top::TopOptions;
use crate::view::grouping::GroupBy;
use crate::view::links::Links;
use crate::view::live::LiveFrames;

pub(super) const SECOND: i64 = 1_000_000_000;

pub(super) fn link(name: &str, subsystem: &str, first: u32, peaks: &[(PeakSource, f64)]) -> Link {
    let counted = |counter, direction| LinkCounter { counter, direction };
    let peak = |(source, bytes_per_s): &(PeakSource, f64)| PeakRate {
        direction: Direction::In,
        bytes_per_s: *bytes_per_s,
        source: *source,
        detail: String::new(),
    };
    Link {
        name: name.to_owned(),
        kind: subsystem.to_owned(),
        subsystem: subsystem.to_owned(),
        socket: Some(0),
        devices: None,
        counters: vec![counted(first, Direction::In), counted(first + 1, Direction::Out)],
        peaks: peaks.iter().map(peak).collect(),
        latencies: Vec::new(),
    }
}

/// The owners and their shares, in percent.
const OWNERS: [(&str, Option<i32>, Option<&str>, f64); 5] = [
    (
        "task",
        Some(7),
        Some("/kubepods.slice/kubepods-burstable.slice/pod0123/cri-0123456789"),
        60.0,
    ),
    ("task", Some(8), Some("/system.slice/\u{1b}[2Jevil\n.service"), 25.0),
    ("task", Some(9), Some("/租户甲乙丙丁租户甲乙丙丁"), 9.0),
    ("irq", None, None, 5.0),
    ("idle", None, None, 1.0),
];

/// A row without a value of the window of a second that ends at this second.
pub(super) fn row(second: i64, counter: i32, owner: &'static str) -> fabric::Row<'static> {
    fabric::Row {
        ts: 0,
        mono_ns: second * SECOND,
        window_ns: SECOND,
        host: "host",
        boot_id: "3f4e5d6c",
        cluster: None,
        counter,
        socket: Some(0),
        cpu: 0,
        subsystem: "mem",
        pmu: "pmu_0",
        event: "bytes",
        filter: "",
        unit: "bytes",
        owner,
        pid: None,
        number: None,
        comm: None,
        cgroup_id: None,
        cgroup: None,
        container: None,
        pod: None,
        value: None,
        total: None,
        running: 1.0,
        method: "regression",
        confidence: None,
        cgroup_confidence: None,
        processes: None,
        job: None,
    }
}

fn rows_of_second(second: i64) -> TablePiece {
    let mut builder = fabric::Builder::default();
    for counter in 0..8 {
        // Each direction of a link has its own rate, which grows.
        let total = 0.1e9 * f64::from(counter + 1) * (1.0 + second as f64);
        for (owner, pid, cgroup, part) in OWNERS {
            let is_known = counter != 7;
            builder.append(&fabric::Row {
                pid,
                comm: pid.map(|_| "name"),
                cgroup_id: pid.map(|pid| pid as u64),
                cgroup,
                value: is_known.then_some(total * part / 100.0),
                total: is_known.then_some(total),
                confidence: pid.map(|_| 0.87),
                cgroup_confidence: pid.map(|_| 0.87),
                ..row(second, counter, owner)
            });
        }
    }
    TablePiece::Rows(&fabric::TABLE, builder.finish())
}

/// The application before its first row.
pub(super) fn app_of(links: Vec<Link>, ascii: bool) -> App {
    let options = TopOptions {
        frame: std::time::Duration::from_secs(1),
        grouping: Some(GroupBy::Cgroup),
        select: None,
        ascii,
        plain: true,
        notice: None,
        save: None,
        print: None,
    };
    App::new(LiveFrames::new(Links::new(links), SECOND), &options)
}

fn app(ascii: bool) -> App {
    let links = vec![
        link("memory 0", "mem", 0, &[(PeakSource::Catalog, 2e9)]),
        link("PCIe nvme0n1", "pcie", 2, &[(PeakSource::Sysfs, 3e9), (PeakSource::Calibrated, 2e9)]),
        link("C2C0 0", "c2c", 4, &[(PeakSource::Catalog, 3e9)]),
        link("mesh I/O 0", "mesh", 6, &[]),
    ];
    let mut app = app_of(links, ascii);
    for second in 1..9 {
        app.add_piece(rows_of_second(second)).unwrap();
    }
    app
}

fn press_keys(app: &mut App, keys: &[KeyCode]) {
    for key in keys {
        app.handle_key(KeyEvent::new(*key, KeyModifiers::NONE));
    }
}

/// The drawn screen without the head line, which contains the time.
fn drawn_body(app: &App, width: usize, height: usize) -> String {
    drawn_screen(app, width, height).split_once('\n').unwrap().1.to_owned()
}

fn drawn_screen(app: &App, width: usize, height: usize) -> String {
    let text = |line: Vec<StyledText>| line.into_iter().map(|(text, _)| text).collect::<String>();
    let lines = screen_lines(app, width, height).into_iter().map(text);
    lines.map(|line| line.trim_end().to_owned() + "\n").collect()
}

#[test]
fn a_terminal_of_80_columns_says_who_fills_which_link() {
    let mut app = app(false);
    let mut pictures = vec![("at the begin", drawn_body(&app, 80, 24))];
    press_keys(&mut app, &[KeyCode::Down, KeyCode::Tab, KeyCode::Char('s')]);
    pictures.push(("the second link, the tenants by a group", drawn_body(&app, 80, 24)));
    press_keys(&mut app, &[KeyCode::Enter]);
    pictures.push(("processes of a tenant", drawn_body(&app, 80, 24)));
    press_keys(
        &mut app,
        &[KeyCode::Esc, KeyCode::Char('/'), KeyCode::Char('v'), KeyCode::Char('i')],
    );
    pictures.push(("a filter", drawn_body(&app, 80, 24)));
    press_keys(&mut app, &[KeyCode::Esc, KeyCode::Char('?')]);
    pictures.push(("help", drawn_body(&app, 80, 24)));
    pictures.push(("a wide terminal", {
        press_keys(&mut app, &[KeyCode::Char('x')]);
        drawn_body(&app, 132, 16)
    }));
    pictures.push(("a terminal that is too small", drawn_screen(&app, 50, 10)));
    let all: Vec<String> =
        pictures.into_iter().map(|(title, picture)| format!("== {title}\n{picture}")).collect();
    insta::assert_snapshot!("pictures", all.concat());
}

#[test]
fn colours_are_left_out_of_a_plain_picture() {
    let mut app = app(false);
    let codes = |app: &App| {
        let text = styled_lines(app, 80, 24).concat();
        let codes = text.split("\u{1b}[").skip(1).filter_map(|rest| rest.split_once('m'));
        codes.map(|(code, _)| code.to_owned()).collect::<std::collections::BTreeSet<_>>()
    };
    let plain = codes(&app);
    assert!(plain.contains("1") && plain.contains("7"), "{plain:?}");
    assert!(!plain.iter().any(|code| code.starts_with("38;")), "{plain:?}");
    app.plain = false;
    assert!(codes(&app).iter().any(|code| code.starts_with("38;")));
}

#[test]
fn a_terminal_that_is_too_small_shows_the_needed_size() {
    let app = app(false);
    for (width, height) in [(30, 6), (20, 3), (59, 12), (100, 11)] {
        let told =
            drawn_screen(&app, width, height).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(told, format!("60x12 needed, {width}x{height} here; q quits"));
    }
}

#[test]
fn lines_fit_the_terminal_and_hostile_names_are_escaped() {
    for ascii in [false, true] {
        let mut app = app(ascii);
        for key in ['g', 's', 's', 's', 'g', 'g', '?', ' '] {
            press_keys(&mut app, &[KeyCode::Char(key)]);
            for (width, height) in [(60, 12), (61, 13), (80, 24), (100, 30), (200, 60)] {
                for line in screen_lines(&app, width, height) {
                    let text: String = line.into_iter().map(|(text, _)| text).collect();
                    assert!(cells(&text) <= width, "{width}: {text}");
                    assert!(!text.contains(['\u{1b}', '\n']), "{text:?}");
                    let own = text.chars().all(|c| c.is_ascii() || "租户甲乙丙丁".contains(c));
                    assert!(!ascii || own, "{text}");
                }
            }
        }
    }
}

#[test]
fn the_text_of_one_picture_has_all_lines() {
    let text = list_text(&app(true), 100);
    for wanted in ["memory 0", "PCIe nvme0n1", "C2C0 0", "mesh I/O 0", "(irq)", "(idle)"] {
        assert_eq!(text.matches(wanted).count(), 1, "{wanted}\n{text}");
    }
    assert!(text.is_ascii() || text.contains("租户"), "{text}");
}

#[test]
fn keys_do_nothing_where_there_are_no_links() {
    let mut app = App::new(
        LiveFrames::new(Links::default(), SECOND),
        &TopOptions {
            frame: std::time::Duration::from_secs(1),
            grouping: Some(GroupBy::Cgroup),
            select: None,
            ascii: false,
            plain: true,
            notice: Some("why".to_owned()),
            save: None,
            print: None,
        },
    );
    let codes = [
        KeyCode::Enter,
        KeyCode::Esc,
        KeyCode::Down,
        KeyCode::End,
        KeyCode::Home,
        KeyCode::Backspace,
        KeyCode::Char('s'),
        KeyCode::Char('+'),
        KeyCode::Char('-'),
        KeyCode::Char('p'),
    ];
    for code in codes {
        press_keys(&mut app, &[code]);
        assert!(!drawn_body(&app, 80, 24).is_empty());
    }
    app.handle_key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
    assert!(app.has_quit);
}

#[test]
fn a_narrow_terminal_keeps_the_rates_of_the_links() {
    let mut app = app(false);
    press_keys(&mut app, &[KeyCode::Tab, KeyCode::Enter]);
    let head = |app: &App| drawn_body(app, 60, 20).lines().next().unwrap().to_owned();
    let narrow = head(&app);
    assert!(narrow.contains("its GB/s") && narrow.contains("in GB/s"), "{narrow}");
    assert!(narrow.contains("out GB/s") && !narrow.contains("of peak"), "{narrow}");
    assert!(drawn_body(&app, 80, 24).contains("of peak"));
}
