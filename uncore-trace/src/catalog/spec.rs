//! The grammar of `-e`: parses perf's event texts into plain data.
//!
//! It does not depend on a machine: whether a PMU or term exists is checked later. Every part keeps
//! its column for error messages.

use std::fmt;

use crate::discover::event::number;

/// An error in an event text, at a column counted in characters from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At {
    /// The column.
    pub column: usize,
    /// The message.
    pub message: String,
}

impl At {
    /// An error at `column`.
    pub fn new(column: usize, message: impl Into<String>) -> Self {
        Self { column, message: message.into() }
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {}: {}", self.column, self.message)
    }
}

impl std::error::Error for At {}

/// The value of a term.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TermValue {
    /// `term`
    Bare,
    /// `term=0x3`
    Number(u64),
    /// `term=cycles`: the value that the event of that name has for the term.
    Symbol(String),
}

/// One term between the slashes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    /// A format, an event, or a word like `config`.
    pub name: String,
    /// Its value.
    pub value: TermValue,
    /// Its column.
    pub column: usize,
}

/// One event as typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventSpec {
    /// The part before the slash; `None` for a bare name.
    pub pmu: Option<String>,
    /// The terms between the slashes; for a bare name, the name as the only term.
    pub terms: Vec<Term>,
    /// Where the event starts.
    pub column: usize,
}

/// An event, or events in braces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A single event.
    One(EventSpec),
    /// `{a,b}`: events that are counted together. `:W` allows the kernel to refuse that.
    Group {
        /// The events in order; the first is the leader.
        members: Vec<EventSpec>,
        /// Whether `:W` was given.
        weak: bool,
    },
}

/// Parses the text of one `-e`. Quotes around an item, left over from a shell, are skipped.
pub fn parse(text: &str) -> Result<Vec<Item>, At> {
    let mut cursor = Cursor { chars: text.chars().collect(), at: 0 };
    let mut items = Vec::new();
    loop {
        cursor.skip_blank();
        items.push(if cursor.eat('{') { cursor.group()? } else { Item::One(cursor.event()?) });
        cursor.skip_blank();
        match cursor.peek() {
            None => return Ok(items),
            Some(',') => cursor.at += 1,
            Some('}') => return Err(cursor.error("there is no '{' that this closes")),
            Some(c) => return Err(cursor.error(format!("expected ',' or the end, not {c:?}"))),
        }
    }
}

/// Parses the text between the slashes of an event.
pub fn terms(text: &str) -> Result<Vec<Term>, At> {
    let mut cursor = Cursor { chars: text.chars().chain(['/']).collect(), at: 0 };
    let terms = cursor.terms()?;
    if cursor.peek().is_some() {
        return Err(At::new(cursor.at, "there is no place for '/' between the slashes"));
    }
    Ok(terms)
}

struct Cursor {
    chars: Vec<char>,
    at: usize,
}

impl Cursor {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn eat(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    fn column(&self) -> usize {
        self.at + 1
    }

    fn error(&self, message: impl Into<String>) -> At {
        At::new(self.column(), message)
    }

    fn skip(&mut self, unwanted: impl Fn(char) -> bool) {
        while self.peek().is_some_and(&unwanted) {
            self.at += 1;
        }
    }

    fn skip_blank(&mut self) {
        self.skip(|c| c.is_whitespace() || c == '\'' || c == '"');
    }

    fn word(&mut self) -> String {
        let start = self.at;
        while let Some(c) = self.peek() {
            if !(c.is_alphanumeric() || "_-.*?[]!".contains(c)) {
                break;
            }
            self.at += 1;
        }
        self.chars[start..self.at].iter().collect()
    }

    /// Parses a group after `{`.
    fn group(&mut self) -> Result<Item, At> {
        let opened = self.at;
        let mut members = Vec::new();
        loop {
            self.skip_blank();
            if self.peek() == Some('{') {
                return Err(self.error("a group cannot stand in a group"));
            }
            members.push(self.event()?);
            self.skip_blank();
            if self.eat('}') {
                break;
            }
            if !self.eat(',') {
                let message = "the group that starts here has no '}' or lacks a ','";
                return Err(At::new(opened, message));
            }
        }
        let weak = self.modifiers(true)?;
        Ok(Item::Group { members, weak })
    }

    fn event(&mut self) -> Result<EventSpec, At> {
        let column = self.column();
        let word = self.word();
        if word.is_empty() {
            return Err(self.error(match self.peek() {
                None => "expected an event here: PMU/term=value,.../, a name or {a,b}".to_owned(),
                Some(c) => format!("expected an event here, not {c:?}"),
            }));
        }
        let spec = if self.eat('/') {
            EventSpec { pmu: Some(word), terms: self.terms()?, column }
        } else {
            let term = Term { name: word, value: TermValue::Bare, column };
            EventSpec { pmu: None, terms: vec![term], column }
        };
        self.modifiers(false)?;
        Ok(spec)
    }

    /// Parses terms after the first `/`, including the second one.
    fn terms(&mut self) -> Result<Vec<Term>, At> {
        let opened = self.at;
        let mut terms = Vec::new();
        loop {
            self.skip(char::is_whitespace);
            let column = self.column();
            let name = self.word();
            if name.is_empty() {
                return Err(self.error("expected a term here, such as an event or event=0x1"));
            }
            let value = if self.eat('=') { self.value()? } else { TermValue::Bare };
            terms.push(Term { name, value, column });
            self.skip(char::is_whitespace);
            if self.eat('/') {
                return Ok(terms);
            }
            if !self.eat(',') {
                return Err(match self.peek() {
                    None => At::new(opened, "the '/' here has no closing '/'"),
                    Some(c) => self.error(format!("expected ',' or '/' here, not {c:?}")),
                });
            }
        }
    }

    fn value(&mut self) -> Result<TermValue, At> {
        let column = self.column();
        let word = self.word();
        match word.chars().next() {
            None => Err(At::new(column, "expected a value after '='")),
            Some(c) if c.is_ascii_digit() => match number(&word) {
                Ok(number) => Ok(TermValue::Number(number)),
                Err(error) => Err(At::new(column, error.to_string())),
            },
            Some(_) => Ok(TermValue::Symbol(word)),
        }
    }

    /// Parses the modifiers of an event or group. Returns whether `W` is among them.
    ///
    /// perf's other modifiers select what a *core* counter excludes (`u`, `k`, `h`) or how it
    /// samples. Uncore PMUs refuse them, and ignoring them would count something else.
    fn modifiers(&mut self, group: bool) -> Result<bool, At> {
        let column = self.column();
        self.eat(':');
        let word = self.word();
        match word.as_str() {
            "" if self.at + 1 == column => Ok(false),
            "W" if group => Ok(true),
            "" => Err(At::new(column, "expected a modifier after ':'")),
            _ if word.chars().all(|c| "ukhpPGHSDIWebR".contains(c)) => Err(At::new(
                column,
                format!(
                    "the modifier {word:?} is not possible here: the counters count all that \
                     happens on their CPU; leave it out"
                ),
            )),
            _ => Err(At::new(
                column,
                format!("{word:?} is no modifier (tracepoints cannot be counted here)"),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Event texts from vendor documentation (NVIDIA Tegra410 and Grace, Alibaba Yitian 710), which
    /// users paste. Each is accepted unchanged.
    const PUBLISHED: &[&str] = &[
        "nvidia_ucf_pmu_0/event=0x0/",
        "nvidia_ucf_pmu_0/event=0x0,src_loc_cpu=0x1,dst_loc_cmem=0x1/",
        "nvidia_ucf_pmu_1/event=0x0,src_loc_noncpu=0x1,dst_rem=0x1/",
        "nvidia_pcie_pmu_0_rc_0/event=0x0,src_rp_mask=0x1/",
        "nvidia_pcie_pmu_0_rc_1/event=0x1,src_rp_mask=0x3,dst_loc_cmem=0x1/",
        "nvidia_pcie_pmu_1_rc_2/event=0x2,src_rp_mask=0x1/",
        "nvidia_pcie_pmu_1_rc_3/event=0x3,src_rp_mask=0x3,dst_loc_cmem=0x1/",
        "nvidia_pcie_pmu_0_rc_4/event=0x4,src_bdf=0x0180,src_bdf_en=0x1/",
        "nvidia_pcie_tgt_pmu_0_rc_0/event=0x0,dst_rp_mask=0x3/",
        "nvidia_pcie_tgt_pmu_0_rc_1/event=0x1,dst_addr_base=0x10000,dst_addr_mask=0xFFF00,dst_addr_en=0x1/",
        "{nvidia_cmem_latency_pmu_0/rd_req/,nvidia_cmem_latency_pmu_0/rd_cum_outs/,nvidia_cmem_latency_pmu_0/cycles/}",
        "nvidia_nvlink_c2c_pmu_0/in_rd_req/",
        "nvidia_nvlink_c2c_pmu_0/in_rd_cum_outs,gpu_mask=0x1/",
        "nvidia_nvlink_c2c_pmu_0/in_rd_cum_outs,gpu_mask=0x2/",
        "nvidia_nvlink_c2c_pmu_0/out_rd_req/",
        "nvidia_nvlink_c2c_pmu_0/out_rd_cum_outs,gpu_mask=0x1/",
        "nvidia_nvlink_c2c_pmu_0/out_rd_cum_outs,gpu_mask=0x2/",
        "nvidia_nvclink_pmu_0/in_rd_req/",
        "nvidia_nvclink_pmu_0/out_rd_req/",
        "{nvidia_nvdlink_pmu_0/in_rd_req/,nvidia_nvdlink_pmu_0/in_rd_cum_outs/}",
        "duration_time,'{nvidia_scf_pmu_0/event=cycles/,nvidia_scf_pmu_0/cmem_wb_access/,nvidia_scf_pmu_0/cmem_wr_access/}'",
        "duration_time,'{nvidia_scf_pmu_0/cmem_wr_total_bytes/,nvidia_scf_pmu_0/cmem_rd_data/}','{nvidia_scf_pmu_1/remote_socket_wr_total_bytes/,nvidia_scf_pmu_1/remote_socket_rd_data/}'",
        "nvidia_pcie_pmu_0/rd_bytes_loc,root_port=0x3/",
        "duration_time,'{nvidia_pcie_pmu_1/rd_bytes_rem,root_port=0x4/}'",
        "duration_time,'{nvidia_pcie_pmu_0/rd_bytes_loc,root_port=0x100/,nvidia_pcie_pmu_0/wr_bytes_loc,root_port=0x100/,nvidia_pcie_pmu_0/rd_bytes_rem,root_port=0x100/,nvidia_pcie_pmu_0/wr_bytes_rem,root_port=0x100/}'",
        "duration_time,'{nvidia_nvlink_c2c0_pmu_0/rd_bytes_loc/,nvidia_nvlink_c2c0_pmu_0/wr_bytes_loc/}'",
        "'{nvidia_nvlink_c2c0_pmu_0/total_bytes_loc/,nvidia_nvlink_c2c0_pmu_0/rd_bytes_loc/,nvidia_nvlink_c2c0_pmu_0/wr_bytes_loc/}','{nvidia_nvlink_c2c1_pmu_0/total_bytes_loc/,nvidia_nvlink_c2c1_pmu_0/rd_bytes_loc/,nvidia_nvlink_c2c1_pmu_0/wr_bytes_loc/}'",
        "cache-misses,cycles,instructions",
        "cycles,stalled-cycles-backend",
        "cycles,instructions,dTLB-loads,dTLB-load-misses",
        "r80C0",
        "r80C1",
        "pcie_bdf_200/Rx_PCIe_TLP_Data_Payload/",
        "pcie_bdf_200/Tx_PCIe_TLP_Data_Payload/",
        "arm_cmn_0/type=0x105,eventid=0x22,bynodeid=1,nodeid=413/",
        "arm_cmn_0/dtc_cycles/",
        "pmu/param1=0x3,param2/",
        "pmu/config=1,config1=0x2,config2=03/",
    ];

    #[test]
    fn published_texts_are_taken_unchanged() {
        for text in PUBLISHED {
            parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        }
    }

    #[test]
    fn parts_and_columns() {
        let items = parse("duration_time,'{a/x=010,y=sym, z/,b}:W'").unwrap();
        let [Item::One(time), Item::Group { members, weak: true }] = items.as_slice() else {
            panic!("{items:?}")
        };
        assert_eq!((time.pmu.as_deref(), time.terms[0].name.as_str()), (None, "duration_time"));
        assert_eq!(members[0].pmu.as_deref(), Some("a"));
        let terms: Vec<_> =
            members[0].terms.iter().map(|t| (t.name.as_str(), &t.value, t.column)).collect();
        assert_eq!(
            terms,
            [
                ("x", &TermValue::Number(8), 19),
                ("y", &TermValue::Symbol("sym".to_owned()), 25),
                ("z", &TermValue::Bare, 32)
            ]
        );
        assert_eq!(members[1].column, 35);
    }

    #[test]
    fn terms_alone() {
        let names =
            |text| Some(terms(text).ok()?.into_iter().map(|term| term.name).collect::<Vec<_>>());
        assert_eq!(names("a,b=1").unwrap(), ["a", "b"]);
        for wrong in ["", "a,", "a/b", "a/"] {
            assert_eq!(names(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn errors_point_at_their_column() {
        for (text, column) in [
            ("", 1),
            ("a,", 3),
            ("a/b", 2),
            ("a/b=/", 5),
            ("a/b=09/", 5),
            ("a//", 3),
            ("{a,b", 1),
            ("{a,{b}}", 4),
            ("a}", 2),
            ("a/b;c/", 4),
            ("cycles:u", 7),
            ("sched:sched_switch", 6),
            ("a/b/k", 5),
            ("a:", 2),
        ] {
            let error = parse(text).expect_err(text);
            assert_eq!(error.column, column, "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a-z0-9{}/:,='\\. é*-]{0,30}") {
            let _unused = parse(&text);
        }
    }
}
