//! Formulas of metrics: parsed once, evaluated for each reading.
//!
//! A formula has numbers, names, `+ - * /`, parentheses and `max(A, B)`. `*` and `/` take
//! precedence; operators of equal precedence are evaluated from the left. A name starts with a
//! letter or `_`, followed by letters, digits, `_` and `.`, and by `-` if a character of a name
//! follows directly, as in event names. So subtraction needs a blank before the `-`.
//!
//! Guarantees: no text causes a panic or unbounded recursion. An error has its column. An undefined
//! value (above all a division by zero) makes the whole result undefined, never 0 or infinite: `x /
//! (y / 0)` is undefined too, where IEEE arithmetic gives 0.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

use super::spec::ColumnError;

/// Largest depth of nested parentheses and signs; each takes a few stack frames.
const MAX_DEPTH: usize = 64;

/// The name of the larger of two values.
const MAX: &str = "max";

/// A formula and its text.
#[derive(Debug, Clone, PartialEq)]
pub struct Formula {
    text: String,
    root: FormulaNode,
}

#[derive(Debug, Clone, PartialEq)]
enum FormulaNode {
    Number(f64),
    Name(String),
    Negative(Box<FormulaNode>),
    /// The larger of two.
    Max(Box<(FormulaNode, FormulaNode)>),
    /// The first operand, then pairs of operator and operand: a chain with one precedence.
    Chain(Box<FormulaNode>, Vec<(FormulaOperator, FormulaNode)>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FormulaOperator {
    Plus,
    Minus,
    Times,
    Over,
}

impl FormulaOperator {
    fn apply_to(self, a: f64, b: f64) -> Option<f64> {
        let value = match self {
            Self::Plus => a + b,
            Self::Minus => a - b,
            Self::Times => a * b,
            Self::Over => a / b,
        };
        value.is_finite().then_some(value)
    }
}

impl Formula {
    /// The value, with `value_of` giving that of each name; `None` if it is undefined. A name
    /// without a finite value makes it undefined.
    pub fn evaluate(&self, value_of: &dyn Fn(&str) -> Option<f64>) -> Option<f64> {
        self.root.evaluate(value_of)
    }

    /// Every name, in the order of first use.
    pub fn distinct_names(&self) -> Vec<&str> {
        let mut names = Vec::new();
        self.root.visit_names(&mut |name, _| names.push(name));
        let mut seen = BTreeSet::new();
        names.retain(|name| seen.insert(*name));
        names
    }

    /// The names in divisors.
    pub fn divisor_names(&self) -> BTreeSet<&str> {
        let mut divisors = BTreeSet::new();
        self.root.visit_names(&mut |name, divides| {
            if divides {
                divisors.insert(name);
            }
        });
        divisors
    }
}

impl FormulaNode {
    fn evaluate(&self, value_of: &dyn Fn(&str) -> Option<f64>) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Name(name) => value_of(name).filter(|value| value.is_finite()),
            Self::Negative(node) => Some(-node.evaluate(value_of)?),
            Self::Max(operands) => {
                Some(operands.0.evaluate(value_of)?.max(operands.1.evaluate(value_of)?))
            }
            Self::Chain(head, tail) => {
                tail.iter().try_fold(head.evaluate(value_of)?, |value, step| {
                    step.0.apply_to(value, step.1.evaluate(value_of)?)
                })
            }
        }
    }

    /// Calls `visit` with every name and whether it is in a divisor.
    fn visit_names<'a>(&'a self, visit: &mut dyn FnMut(&'a str, bool)) {
        match self {
            Self::Number(_) => {}
            Self::Name(name) => visit(name, false),
            Self::Negative(node) => node.visit_names(visit),
            Self::Max(operands) => {
                operands.0.visit_names(visit);
                operands.1.visit_names(visit);
            }
            Self::Chain(head, tail) => {
                head.visit_names(visit);
                for (operator, node) in tail {
                    let is_divisor = *operator == FormulaOperator::Over;
                    node.visit_names(&mut |name, divides| visit(name, divides || is_divisor));
                }
            }
        }
    }
}

impl fmt::Display for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Formula {
    type Err = ColumnError;

    fn from_str(text: &str) -> Result<Self, ColumnError> {
        let mut parser = FormulaParser { chars: text.chars().collect(), position: 0, depth: 0 };
        let root = parser.parse_sum()?;
        match parser.peek_char() {
            None => Ok(Self { text: text.to_owned(), root }),
            Some(')') => Err(parser.error_here("unmatched ')'")),
            Some(c) => {
                Err(parser.error_here(format!("expected an operator or the end, not {c:?}")))
            }
        }
    }
}

impl<'de> Deserialize<'de> for Formula {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Whether `c` can be in a name, apart from `-`.
fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '.'
}

struct FormulaParser {
    chars: Vec<char>,
    position: usize,
    depth: usize,
}

impl FormulaParser {
    /// The next character that is not a blank.
    fn peek_char(&mut self) -> Option<char> {
        while self.chars.get(self.position).is_some_and(|c| c.is_whitespace()) {
            self.position += 1;
        }
        self.chars.get(self.position).copied()
    }

    fn error_here(&self, message: impl Into<String>) -> ColumnError {
        ColumnError::new(self.position + 1, message)
    }

    fn parse_sum(&mut self) -> Result<FormulaNode, ColumnError> {
        self.parse_chain(
            &[('+', FormulaOperator::Plus), ('-', FormulaOperator::Minus)],
            Self::parse_product,
        )
    }

    fn parse_product(&mut self) -> Result<FormulaNode, ColumnError> {
        self.parse_chain(
            &[('*', FormulaOperator::Times), ('/', FormulaOperator::Over)],
            Self::parse_operand,
        )
    }

    fn parse_chain(
        &mut self,
        operators: &[(char, FormulaOperator)],
        parse_inner: fn(&mut Self) -> Result<FormulaNode, ColumnError>,
    ) -> Result<FormulaNode, ColumnError> {
        let head = parse_inner(self)?;
        let mut tail = Vec::new();
        while let Some(symbol) = self.peek_char() {
            let Some((_, operator)) = operators.iter().find(|(c, _)| *c == symbol) else { break };
            self.position += 1;
            tail.push((*operator, parse_inner(self)?));
        }
        Ok(if tail.is_empty() { head } else { FormulaNode::Chain(Box::new(head), tail) })
    }

    fn parse_operand(&mut self) -> Result<FormulaNode, ColumnError> {
        let Some(c) = self.peek_char() else {
            return Err(self.error_here("expected a number, a name or '(' here, not the end"));
        };
        match c {
            '(' => self.parse_nested(Self::parse_parenthesis),
            '-' => self.parse_nested(|parser| {
                Ok(FormulaNode::Negative(Box::new(parser.parse_operand()?)))
            }),
            _ if c.is_ascii_digit() || c == '.' => self.parse_number(),
            _ if is_name_char(c) => {
                let name = self.parse_name();
                if name == MAX && self.peek_char() == Some('(') {
                    return self.parse_nested(Self::parse_max);
                }
                Ok(FormulaNode::Name(name))
            }
            _ => Err(self.error_here(format!("expected a number, a name or '(' here, not {c:?}"))),
        }
    }

    /// What follows a parenthesis or a sign, as `parse_inner` parses it.
    fn parse_nested(
        &mut self,
        parse_inner: fn(&mut Self) -> Result<FormulaNode, ColumnError>,
    ) -> Result<FormulaNode, ColumnError> {
        if self.depth == MAX_DEPTH {
            let message = format!("parentheses or signs are nested more than {MAX_DEPTH} deep");
            return Err(self.error_here(message));
        }
        self.depth += 1;
        self.position += 1;
        let node = parse_inner(self)?;
        self.depth -= 1;
        Ok(node)
    }

    /// The content of parentheses, behind the opening one.
    fn parse_parenthesis(&mut self) -> Result<FormulaNode, ColumnError> {
        let opened = self.position;
        let node = self.parse_sum()?;
        self.close_parenthesis(opened)?;
        Ok(node)
    }

    /// The larger of two, behind the opening parenthesis.
    fn parse_max(&mut self) -> Result<FormulaNode, ColumnError> {
        let opened = self.position;
        let left = self.parse_sum()?;
        if self.peek_char() != Some(',') {
            return Err(self.error_here(format!("expected a ',': {MAX} takes two values")));
        }
        self.position += 1;
        let operands = (left, self.parse_sum()?);
        self.close_parenthesis(opened)?;
        Ok(FormulaNode::Max(Box::new(operands)))
    }

    /// Expects the end of the parenthesis in this column.
    fn close_parenthesis(&mut self, opened: usize) -> Result<(), ColumnError> {
        match self.peek_char() {
            Some(')') => self.position += 1,
            None => return Err(ColumnError::new(opened, "the '(' here has no closing ')'")),
            Some(c) => {
                return Err(self.error_here(format!("expected an operator or ')', not {c:?}")));
            }
        }
        Ok(())
    }

    /// Digits, with an optional point and exponent.
    fn parse_number(&mut self) -> Result<FormulaNode, ColumnError> {
        let start = self.position;
        while let Some(&c) = self.chars.get(self.position) {
            let exponent =
                self.position > start && matches!(self.chars[self.position - 1], 'e' | 'E');
            if !(is_name_char(c) || exponent && (c == '-' || c == '+')) {
                break;
            }
            self.position += 1;
        }
        let text: String = self.chars[start..self.position].iter().collect();
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
        number
            .map(FormulaNode::Number)
            .ok_or_else(|| ColumnError::new(start + 1, format!("{text:?} is not a number")))
    }

    fn parse_name(&mut self) -> String {
        let start = self.position;
        while let Some(&c) = self.chars.get(self.position) {
            let dash = c == '-'
                && self
                    .chars
                    .get(self.position + 1)
                    .is_some_and(|following| is_name_char(*following));
            if !(is_name_char(c) || dash) {
                break;
            }
            self.position += 1;
        }
        self.chars[start..self.position].iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value(text: &str) -> Option<f64> {
        let formula: Formula = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        formula.evaluate(&|name| match name {
            "a" => Some(6.0),
            "b.c-d" => Some(4.0),
            "zero" => Some(0.0),
            "nan" => Some(f64::NAN),
            _ => None,
        })
    }

    #[test]
    fn operators_have_their_precedence_and_names_their_values() {
        for (text, expected) in [
            ("1 + 2 * 3", 7.0),
            ("(1 + 2) * 3", 9.0),
            ("8 / 4 / 2", 1.0),
            ("8 - 4 - 2", 2.0),
            ("8 - 4 + 2", 6.0),
            ("-a * -2", 12.0),
            ("1 - -1", 2.0),
            ("a - b.c-d", 2.0),
            ("a/b.c-d", 1.5),
            ("1-a", -5.0),
            ("1.5e-1*2", 0.3),
            ("1e+2", 100.0),
            (".5", 0.5),
            ("max(a, b.c-d)", 6.0),
            ("2 * max ( 1 - a , zero ) + 1", 1.0),
            ("max(max(1, 2), 3) / max(a, 1)", 0.5),
        ] {
            assert_eq!(value(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn an_undefined_operand_makes_the_formula_undefined() {
        for text in [
            "a / zero",
            "zero / zero",
            "1 / (a / zero)",
            "0 * (a / zero)",
            "(a / zero) / (a / zero)",
            "-(1 / zero) + 1",
            "nan",
            "unknown + 1",
            "1e308 * 10",
            "1 / (1e308 * 10)",
            "max(1, a / zero)",
            "max",
        ] {
            assert_eq!(value(text), None, "{text}");
        }
        assert_eq!(value("zero / a"), Some(0.0));
    }

    #[test]
    fn a_formula_lists_its_names_in_order_and_its_divisors() {
        let formula: Formula = "(b / c) / (a / t) + b * 2 / 3".parse().unwrap();
        assert_eq!(formula.distinct_names(), ["b", "c", "a", "t"]);
        assert_eq!(Vec::from_iter(formula.divisor_names()), ["a", "c", "t"]);
        assert_eq!(formula.to_string(), "(b / c) / (a / t) + b * 2 / 3");
    }

    #[test]
    fn errors_of_a_formula_point_at_their_column() {
        for (text, column) in [
            ("", 1),
            ("a +", 4),
            ("a b", 3),
            ("a + * b", 5),
            ("(a", 1),
            ("a)", 2),
            ("2 * (a + b]", 11),
            ("1.2.3", 1),
            ("2x", 1),
            ("1e999", 1),
            ("a ^ 2", 3),
            ("é", 1),
            ("max(a)", 6),
            ("max(a, a", 4),
            ("max(a, a, a)", 9),
        ] {
            let error = text.parse::<Formula>().expect_err(text);
            assert_eq!(error.column, column, "{text}: {error}");
        }
        assert!("(".repeat(100_000).parse::<Formula>().is_err());
        assert!("-".repeat(100_000).parse::<Formula>().is_err());
    }

    /// A formula, with its value computed independently while it is generated.
    fn expression() -> impl Strategy<Value = (String, Option<f64>)> {
        let leaf = (0_u32..20).prop_map(|n| {
            let value = f64::from(n % 5);
            (if n < 10 { format!("v{}", n % 5) } else { format!("{value}") }, Some(value))
        });
        leaf.prop_recursive(6, 64, 2, |inner| {
            let pair = (inner.clone(), inner, 0..5_usize);
            pair.prop_map(|((a, x), (b, y), operator)| {
                let text = match operator {
                    4 => format!("-({a})"),
                    _ => format!("({a}) {} ({b})", ["+", "-", "*", "/"][operator]),
                };
                let value = match (operator, x, y) {
                    (0, Some(x), Some(y)) => Some(x + y),
                    (1, Some(x), Some(y)) => Some(x - y),
                    (2, Some(x), Some(y)) => Some(x * y),
                    (3, Some(_), Some(0.0)) => None,
                    (3, Some(x), Some(y)) => Some(x / y),
                    (4, Some(x), _) => Some(-x),
                    _ => None,
                };
                (text, value.filter(|value| value.is_finite()))
            })
        })
    }

    proptest! {
        #[test]
        fn a_formula_has_the_value_of_its_operations_one_by_one((text, expected) in expression()) {
            let formula: Formula = text.parse().unwrap();
            let of = |name: &str| name[1..].parse().ok();
            prop_assert_eq!(formula.evaluate(&of), expected);
        }

        #[test]
        fn sums_and_products_go_from_the_left(parts in prop::collection::vec((0..4_usize, 1..9_u32), 1..12)) {
            let text = parts.iter().fold("1".to_owned(), |text, (op, n)| {
                text + " " + ["+", "-", "*", "/"][*op] + " " + &n.to_string()
            });
            // Without precedence rules: first the products, then their sum.
            let (mut sum, mut term) = (0.0, 1.0);
            for (op, n) in &parts {
                let n = f64::from(*n);
                match op {
                    0 => { sum += term; term = n; }
                    1 => { sum += term; term = -n; }
                    2 => term *= n,
                    _ => term /= n,
                }
            }
            let formula: Formula = text.parse().unwrap();
            prop_assert_eq!(formula.evaluate(&|_| None), Some(sum + term));
        }

        #[test]
        fn no_formula_text_panics(text in "[a-c0-9.eE_()*/+ é-]{0,40}") {
            if let Ok(formula) = text.parse::<Formula>() {
                let _unused = formula.evaluate(&|_| Some(0.0));
            }
        }
    }
}
