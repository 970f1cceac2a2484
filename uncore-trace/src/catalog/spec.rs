//! The grammar of `-e`: parses perf's event texts into plain data.
//!
//! The grammar is that of perf's lexer and parser (`tools/perf/util/parse-events.l` and `.y`, Linux
//! 7.2), which skip blanks. It does not depend on a machine: whether a PMU or term exists is checked
//! later. Every part keeps its column for error messages.

use std::fmt;

use super::modifiers;
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
    /// `term=cycles`: the value that the event of that name has for the term; or `name='X'`.
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
    /// The part before the slash: a PMU, or an event of any PMU; `None` for a bare name.
    pub pmu: Option<String>,
    /// The terms between the slashes; for a bare name, the name as the only term.
    pub terms: Vec<Term>,
    /// Where the event starts.
    pub column: usize,
    /// What its modifiers do not do here, one line each.
    pub notes: Vec<String>,
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
    let mut cursor = Cursor::new(text.chars());
    let mut items = Vec::new();
    loop {
        cursor.skip_blank();
        items.push(if cursor.opens_group() { cursor.group()? } else { Item::One(cursor.event()?) });
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
    let mut cursor = Cursor::new(text.chars().chain(['/']));
    let terms = cursor.terms()?;
    if terms.is_empty() {
        return Err(At::new(1, EXPECTED_TERM));
    }
    if cursor.peek().is_some() {
        return Err(At::new(cursor.at, "there is no place for '/' between the slashes"));
    }
    Ok(terms)
}

const EXPECTED_TERM: &str = "expected a term here, such as an event or event=0x1";

/// Splits `TYPE:CONFIG`, the numbers of `struct perf_event_attr`.
pub fn numeric(word: &str) -> Option<(u32, u64)> {
    let (attr_type, config) = word.split_once(':')?;
    Some((number(attr_type).ok()?.try_into().ok()?, number(config).ok()?))
}

struct Cursor {
    chars: Vec<char>,
    at: usize,
    /// Notes on the event that is being read.
    notes: Vec<String>,
}

impl Cursor {
    fn new(chars: impl Iterator<Item = char>) -> Self {
        Self { chars: chars.collect(), at: 0, notes: Vec::new() }
    }

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

    /// A name, with the characters of `also` in it.
    fn word(&mut self, also: &str) -> String {
        let start = self.at;
        self.skip(|c| c.is_alphanumeric() || "_-.*?[]!".contains(c) || also.contains(c));
        self.chars[start..self.at].iter().collect()
    }

    /// Whether a group starts here, with or without a name, which is skipped: perf prints it only in
    /// reports of samples.
    fn opens_group(&mut self) -> bool {
        let start = self.at;
        self.word("");
        let opens = self.eat('{');
        if !opens {
            self.at = start;
        }
        opens
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
        let weak = self.modifiers()?;
        if let Some(first) = members.first_mut() {
            first.notes.append(&mut self.notes);
        }
        Ok(Item::Group { members, weak })
    }

    fn event(&mut self) -> Result<EventSpec, At> {
        let column = self.column();
        let mut word = self.word("");
        if word.is_empty() {
            return Err(self.error(match self.peek() {
                None => "expected an event here: PMU/term=value,.../, a name or {a,b}".to_owned(),
                Some(c) => format!("expected an event here, not {c:?}"),
            }));
        }
        if self.peek() == Some(':') {
            self.after_colon(&mut word, column)?;
        }
        let (pmu, terms) = if self.eat('/') {
            (Some(word), self.terms()?)
        } else {
            (None, vec![Term { name: word, value: TermValue::Bare, column }])
        };
        self.modifiers()?;
        Ok(EventSpec { pmu, terms, column, notes: std::mem::take(&mut self.notes) })
    }

    /// Adds the config of `TYPE:CONFIG` to the type in `word`. Modifiers are left; a tracepoint or a
    /// breakpoint is an error.
    fn after_colon(&mut self, word: &mut String, column: usize) -> Result<(), At> {
        if word == "mem" {
            return Err(At::new(
                column,
                "mem:ADDRESS is a breakpoint, and only events of PMUs are counted here: use perf",
            ));
        }
        let colon = self.at;
        self.at += 1;
        let second = self.word("");
        let both = format!("{word}:{second}");
        if numeric(&both).is_some() {
            *word = both;
            return Ok(());
        }
        if second.is_empty() || modifiers::looks_like(&second) {
            self.at = colon;
            return Ok(());
        }
        Err(At::new(
            colon + 1,
            format!(
                "{second:?} is no modifier, and {both:?} as a tracepoint cannot be counted here: \
                 only events of PMUs are"
            ),
        ))
    }

    /// Parses terms after the first `/`, including the second one. There may be none.
    fn terms(&mut self) -> Result<Vec<Term>, At> {
        let opened = self.at;
        let mut terms = Vec::new();
        self.skip(char::is_whitespace);
        if self.eat('/') {
            return Ok(terms);
        }
        loop {
            self.skip(char::is_whitespace);
            let column = self.column();
            let name = self.word(":@");
            if name.is_empty() {
                return Err(self.error(EXPECTED_TERM));
            }
            self.skip(char::is_whitespace);
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
        self.skip(char::is_whitespace);
        let column = self.column();
        if let Some(text) = self.quoted()? {
            return Ok(TermValue::Symbol(text));
        }
        let word = self.word(":");
        match word.chars().next() {
            None => Err(At::new(column, "expected a value after '='")),
            // Like `1-3` and `2.0` to perf.
            Some(_) if word.contains(['-', '.', ':']) => Ok(TermValue::Symbol(word)),
            Some(c) if c.is_ascii_digit() => {
                let number = number(&word).map_err(|error| At::new(column, error.to_string()))?;
                // perf-stat(1) has octal numbers, its lexer has not.
                if word.parse().is_ok_and(|decimal: u64| decimal != number) {
                    self.notes
                        .push(format!("{word} is read as octal, {number}; perf reads decimal"));
                }
                Ok(TermValue::Number(number))
            }
            Some(_) => Ok(TermValue::Symbol(word)),
        }
    }

    /// A text in quotes, which may have backslashes before them, left over from a shell.
    fn quoted(&mut self) -> Result<Option<String>, At> {
        let opened = self.at;
        self.eat('\\');
        let Some(quote) = self.peek().filter(|c| *c == '\'' || *c == '"') else {
            self.at = opened;
            return Ok(None);
        };
        self.at += 1;
        let start = self.at;
        self.skip(|c| c != quote);
        let text: String = self.chars[start..self.at].iter().collect();
        if !self.eat(quote) {
            return Err(At::new(opened + 1, format!("the {quote} here has no closing {quote}")));
        }
        Ok(Some(text.strip_suffix('\\').unwrap_or(&text).to_owned()))
    }

    /// Parses the modifiers of an event or group. Returns whether `W` is among them.
    fn modifiers(&mut self) -> Result<bool, At> {
        let column = self.column();
        let colon = self.eat(':');
        let word = self.word("");
        if word.is_empty() && colon {
            return Err(At::new(column, "expected a modifier after ':'"));
        }
        self.notes.extend(modifiers::notes(&word).map_err(|message| At::new(column, message))?);
        Ok(word.contains('W'))
    }
}

#[cfg(test)]
mod tests;
