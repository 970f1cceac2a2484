//! The grammar of `-e`: parses perf's event texts into plain data.
//!
//! The grammar is that of perf's lexer and parser (`tools/perf/util/parse-events.l` and `.y`, Linux
//! 7.2), which skip blanks. It does not depend on a machine: whether a PMU or term exists is
//! checked later. Every part keeps its column for error messages.

use std::fmt;

use super::modifiers;
use crate::discover::event::number;

/// An error in an event text, at a column counted in characters from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnError {
    /// The column.
    pub column: usize,
    /// The message.
    pub message: String,
}

impl ColumnError {
    /// An error at `column`.
    pub fn new(column: usize, message: impl Into<String>) -> Self {
        Self { column, message: message.into() }
    }
}

impl fmt::Display for ColumnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {}: {}", self.column, self.message)
    }
}

impl std::error::Error for ColumnError {}

/// The value of a term.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TermValue {
    /// `term`
    Bare,
    /// `term=0x3`
    Number(u64),
    /// `term=cycles`: the value that the event of that name has for the term; or `name='X'`.
    Symbol(String),
}

/// One term between the slashes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Term {
    /// A format, an event, or a word like `config`.
    pub name: String,
    /// Its value.
    pub value: TermValue,
    /// Its column.
    pub column: usize,
}

impl Term {
    /// A name without a value, at `column`.
    pub fn bare(name: &str, column: usize) -> Self {
        Self { name: name.to_owned(), value: TermValue::Bare, column }
    }
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
pub enum EventItem {
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
pub fn parse(text: &str) -> Result<Vec<EventItem>, ColumnError> {
    let mut cursor = SpecCursor::new(text.chars());
    let mut items = Vec::new();
    loop {
        cursor.skip_blank();
        items.push(if cursor.opens_group() {
            cursor.parse_group()?
        } else {
            EventItem::One(cursor.parse_event()?)
        });
        cursor.skip_blank();
        match cursor.peek_char() {
            None => return Ok(items),
            Some(',') => cursor.position += 1,
            Some('}') => return Err(cursor.error_here("unmatched '}'")),
            Some(c) => return Err(cursor.error_here(format!("expected ',' or the end, not {c:?}"))),
        }
    }
}

/// Parses the text between the slashes of an event.
pub fn terms(text: &str) -> Result<Vec<Term>, ColumnError> {
    let mut cursor = SpecCursor::new(text.chars().chain(['/']));
    let terms = cursor.parse_terms()?;
    if terms.is_empty() {
        return Err(ColumnError::new(1, EXPECTED_TERM));
    }
    if cursor.peek_char().is_some() {
        return Err(ColumnError::new(cursor.position, "a '/' is not allowed between the slashes"));
    }
    Ok(terms)
}

const EXPECTED_TERM: &str = "expected a term here, such as an event or event=0x1";

/// Splits `TYPE:CONFIG`, the numbers of `struct perf_event_attr`.
pub fn parse_numeric(word: &str) -> Option<(u32, u64)> {
    let (attr_type, config) = word.split_once(':')?;
    Some((number(attr_type).ok()?.try_into().ok()?, number(config).ok()?))
}

struct SpecCursor {
    chars: Vec<char>,
    position: usize,
    /// Notes on the event that is being read.
    notes: Vec<String>,
}

impl SpecCursor {
    fn new(chars: impl Iterator<Item = char>) -> Self {
        Self { chars: chars.collect(), position: 0, notes: Vec::new() }
    }

    fn peek_char(&self) -> Option<char> {
        self.chars.get(self.position).copied()
    }

    fn eat_char(&mut self, wanted: char) -> bool {
        let is_next = self.peek_char() == Some(wanted);
        self.position += usize::from(is_next);
        is_next
    }

    fn current_column(&self) -> usize {
        self.position + 1
    }

    fn error_here(&self, message: impl Into<String>) -> ColumnError {
        ColumnError::new(self.current_column(), message)
    }

    fn skip_while(&mut self, unwanted: impl Fn(char) -> bool) {
        while self.peek_char().is_some_and(&unwanted) {
            self.position += 1;
        }
    }

    fn skip_blank(&mut self) {
        self.skip_while(|c| c.is_whitespace() || c == '\'' || c == '"');
    }

    /// A name, with the characters of `extra_chars` in it.
    fn read_word(&mut self, extra_chars: &str) -> String {
        let start = self.position;
        self.skip_while(|c| {
            c.is_alphanumeric() || "_-.*?[]!".contains(c) || extra_chars.contains(c)
        });
        self.chars[start..self.position].iter().collect()
    }

    /// Whether a group starts here, with or without a name, which is skipped: perf prints it only
    /// in reports of samples.
    fn opens_group(&mut self) -> bool {
        let start = self.position;
        self.read_word("");
        let opens = self.eat_char('{');
        if !opens {
            self.position = start;
        }
        opens
    }

    /// Parses a group after `{`.
    fn parse_group(&mut self) -> Result<EventItem, ColumnError> {
        let opened = self.position;
        let mut members = Vec::new();
        loop {
            self.skip_blank();
            if self.peek_char() == Some('{') {
                return Err(self.error_here("a group cannot contain a group"));
            }
            members.push(self.parse_event()?);
            self.skip_blank();
            if self.eat_char('}') {
                break;
            }
            if !self.eat_char(',') {
                let message = "the group that starts here has no '}' or lacks a ','";
                return Err(ColumnError::new(opened, message));
            }
        }
        let weak = self.read_modifiers()?;
        if let Some(leader) = members.first_mut() {
            leader.notes.append(&mut self.notes);
        }
        Ok(EventItem::Group { members, weak })
    }

    fn parse_event(&mut self) -> Result<EventSpec, ColumnError> {
        let column = self.current_column();
        let mut word = self.read_word("");
        if word.is_empty() {
            return Err(self.error_here(match self.peek_char() {
                None => "expected an event here: PMU/term=value,.../, a name or {a,b}".to_owned(),
                Some(c) => format!("expected an event here, not {c:?}"),
            }));
        }
        if self.peek_char() == Some(':') {
            self.read_after_colon(&mut word, column)?;
        }
        let (pmu, terms) = if self.eat_char('/') {
            (Some(word), self.parse_terms()?)
        } else {
            (None, vec![Term::bare(&word, column)])
        };
        self.read_modifiers()?;
        Ok(EventSpec { pmu, terms, column, notes: std::mem::take(&mut self.notes) })
    }

    /// Adds the config of `TYPE:CONFIG` to the type in `word`. Modifiers are left; a tracepoint or
    /// a breakpoint is an error.
    fn read_after_colon(&mut self, word: &mut String, column: usize) -> Result<(), ColumnError> {
        if word == "mem" {
            return Err(ColumnError::new(
                column,
                "mem:ADDRESS is a breakpoint, and only events of PMUs are counted here: use perf",
            ));
        }
        let colon = self.position;
        self.position += 1;
        let suffix = self.read_word("");
        let joined = format!("{word}:{suffix}");
        if parse_numeric(&joined).is_some() {
            *word = joined;
            return Ok(());
        }
        if suffix.is_empty() || modifiers::are_modifiers(&suffix) {
            self.position = colon;
            return Ok(());
        }
        Err(ColumnError::new(
            colon + 1,
            format!(
                "{suffix:?} is not a modifier, and the tracepoint {joined:?} cannot be counted: \
                 only events of PMUs can"
            ),
        ))
    }

    /// Parses terms after the first `/`, including the second one. There may be none.
    fn parse_terms(&mut self) -> Result<Vec<Term>, ColumnError> {
        let opened = self.position;
        let mut terms = Vec::new();
        self.skip_while(char::is_whitespace);
        if self.eat_char('/') {
            return Ok(terms);
        }
        loop {
            self.skip_while(char::is_whitespace);
            let column = self.current_column();
            let name = self.read_word(":@");
            if name.is_empty() {
                return Err(self.error_here(EXPECTED_TERM));
            }
            self.skip_while(char::is_whitespace);
            let value = if self.eat_char('=') { self.parse_value()? } else { TermValue::Bare };
            terms.push(Term { name, value, column });
            self.skip_while(char::is_whitespace);
            if self.eat_char('/') {
                return Ok(terms);
            }
            if !self.eat_char(',') {
                return Err(match self.peek_char() {
                    None => ColumnError::new(opened, "the '/' here has no closing '/'"),
                    Some(c) => self.error_here(format!("expected ',' or '/' here, not {c:?}")),
                });
            }
        }
    }

    fn parse_value(&mut self) -> Result<TermValue, ColumnError> {
        self.skip_while(char::is_whitespace);
        let column = self.current_column();
        if let Some(text) = self.read_quoted()? {
            return Ok(TermValue::Symbol(text));
        }
        let word = self.read_word(":");
        match word.chars().next() {
            None => Err(ColumnError::new(column, "expected a value after '='")),
            // Like `1-3` and `2.0` to perf.
            Some(_) if word.contains(['-', '.', ':']) => Ok(TermValue::Symbol(word)),
            Some(c) if c.is_ascii_digit() => {
                let number =
                    number(&word).map_err(|error| ColumnError::new(column, error.to_string()))?;
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
    fn read_quoted(&mut self) -> Result<Option<String>, ColumnError> {
        let opened = self.position;
        self.eat_char('\\');
        let Some(quote) = self.peek_char().filter(|c| *c == '\'' || *c == '"') else {
            self.position = opened;
            return Ok(None);
        };
        self.position += 1;
        let start = self.position;
        self.skip_while(|c| c != quote);
        let text: String = self.chars[start..self.position].iter().collect();
        if !self.eat_char(quote) {
            return Err(ColumnError::new(
                opened + 1,
                format!("the {quote} here has no closing {quote}"),
            ));
        }
        Ok(Some(text.strip_suffix('\\').unwrap_or(&text).to_owned()))
    }

    /// Parses the modifiers of an event or group. Returns whether `W` is among them.
    fn read_modifiers(&mut self) -> Result<bool, ColumnError> {
        let column = self.current_column();
        let colon = self.eat_char(':');
        let word = self.read_word("");
        if word.is_empty() && colon {
            return Err(ColumnError::new(column, "expected a modifier after ':'"));
        }
        self.notes
            .extend(modifiers::notes(&word).map_err(|message| ColumnError::new(column, message))?);
        Ok(word.contains('W'))
    }
}

#[cfg(test)]
mod tests;
