//! Metrics: values with a unit, computed from readings.
//!
//! The catalog describes them ([`Metric`], [`Constant`]), planning finds their inputs, and
//! [`evaluate_metric`] computes a value from counts. It always uses the counts of the whole time in
//! question, not values of shorter times, because a ratio of sums is not a mean of ratios.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::formula::Formula;
use super::spec::{self, Term};
use crate::discover::event::number;
pub use crate::schema::metric::{Across, Input, PlannedMetric};

/// The name of the counted time, in ns, in formulas.
pub const DURATION_NS: &str = "duration_ns";

/// One metric of a family.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    /// Its name: lower-case words joined by `_`. The same quantity has the same name in all
    /// families.
    #[serde(deserialize_with = "deserialize_name")]
    pub name: String,
    /// Description in one line.
    pub about: String,
    /// Unit of the value: `GB/s` (1e9 bytes), `MB/s`, `ns`, `GHz`, `%`, `1` for a ratio,
    /// `req/cycle`, `cycles`, `W`, `MPKI` (misses per thousand instructions), `PKI`, `FLOP/s`.
    pub unit: String,
    /// A formula of events of the family in their unit (bytes, not beats), constants and
    /// [`DURATION_NS`].
    pub formula: Formula,
    /// How the values of instances are combined.
    pub across: Across,
    /// Names in the formula that stand for an event with terms, written as between slashes.
    #[serde(default, deserialize_with = "deserialize_inputs")]
    pub inputs: BTreeMap<String, Vec<Term>>,
    /// Processors for which the formula holds, with the patterns of a family. Empty: all that no
    /// earlier metric with this name is for. Of several metrics with one name, the first whose
    /// events a PMU has is used
    /// ([`PmuWords::find_metric`](super::pmu_words::PmuWords::find_metric)).
    #[serde(default)]
    pub processors: Vec<String>,
    /// A family: the inputs' terms are valid only on machines that have it.
    pub only_with: Option<String>,
    /// Whether it has the vendor's name and formula, which is made of counts, not of values in the
    /// events' units. It is selected by its full name only.
    #[serde(skip)]
    pub vendor: bool,
    /// The PMUs of the family that it is of: names without their index, or patterns. Empty: all.
    #[serde(skip)]
    pub pmus: Vec<String>,
    /// perf's groups of metrics that it is in.
    #[serde(default)]
    pub groups: Vec<String>,
}

/// A name in a family's formulas that is not an event.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constant {
    /// The name.
    #[serde(deserialize_with = "deserialize_name")]
    pub name: String,
    /// The file in the PMU's directory `caps/` with its value; 0 means unknown.
    pub caps: Option<String>,
    /// The filter term whose set bits are counted.
    pub bits_of: Option<String>,
    /// Processors, with the patterns of a family. Empty: all that no earlier constant with this
    /// name is for.
    #[serde(default)]
    pub processors: Vec<String>,
    /// The value if there is no other source. Without it, metrics with this name cannot be
    /// computed.
    pub value: Option<f64>,
}

impl Constant {
    /// The value on a PMU with the files `caps`, for an input whose filter has `bits`; `None` if
    /// unknown.
    pub fn resolve_value(&self, caps: &BTreeMap<String, String>, bits: Option<u64>) -> Option<f64> {
        let stated = self.caps.as_ref().and_then(|file| number(caps.get(file)?).ok());
        let stated = stated.or_else(|| bits.map(|bits| u64::from(bits.count_ones())));
        stated.filter(|value| *value > 0).map(|count| count as f64).or(self.value)
    }
}

fn deserialize_inputs<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<BTreeMap<String, Vec<Term>>, D::Error> {
    let texts = BTreeMap::<String, String>::deserialize(from)?;
    let read = |(name, text): (String, String)| match spec::terms(&text) {
        Ok(terms) => Ok((name, terms)),
        Err(error) => Err(D::Error::custom(format!("{name}: {error}"))),
    };
    texts.into_iter().map(read).collect()
}

/// A name of lower-case words. Names of perf may have dots.
fn deserialize_name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '.');
    if text == DURATION_NS {
        return Err(D::Error::custom(format!(
            "{DURATION_NS} is a reserved name: the time counted"
        )));
    }
    if text.starts_with(|c: char| c.is_ascii_lowercase()) && text.chars().all(word) {
        return Ok(text);
    }
    Err(D::Error::custom(format!("{text:?} is not a name of lower-case words joined by _ or .")))
}

/// The value of a metric.
#[derive(Debug, Clone, PartialEq)]
pub enum MetricValue {
    /// A finite value in the metric's unit.
    Number(f64),
    /// Division by zero: the denominator of the ratio did not occur.
    Undefined,
    /// These inputs have no count.
    Missing(Vec<String>),
}

/// Evaluates a metric over some of its instances: those of a socket, or all.
///
/// `count` returns the count of a counter in its unit, scaled for multiplexing, and `None` if it
/// did not run. `duration_ns` is the counted time, which is the same for all. An instance without
/// the count of an input is left out; if no instance has all inputs, the result is
/// [`MetricValue::Missing`]. Instances of different families add up only with [`Across::Sum`]; with
/// [`Across::Pool`] the result is [`MetricValue::Undefined`], as it is without instances. A
/// constant that differs between pooled instances is averaged, which is exact if their clocks are
/// the same.
pub fn evaluate_metric(
    instances: &[&PlannedMetric],
    count: &dyn Fn(u32) -> Option<f64>,
    duration_ns: f64,
) -> MetricValue {
    let counted = |input: &&Input| input.counter.and_then(count).is_some();
    let whole = |instance: &&&PlannedMetric| instance.inputs.iter().all(|input| counted(&input));
    let wholes: Vec<&PlannedMetric> = instances.iter().filter(whole).copied().collect();
    if wholes.is_empty() && !instances.is_empty() {
        let mut missing = Vec::new();
        let inputs = instances.iter().flat_map(|instance| &instance.inputs);
        for input in inputs.filter(|input| !counted(input)) {
            if !missing.contains(&input.name) {
                missing.push(input.name.clone());
            }
        }
        return MetricValue::Missing(missing);
    }
    let instances = wholes.as_slice();
    let value = match instances {
        [] => None,
        [head, ..] if head.across == Across::Pool => evaluate_pooled(instances, count, duration_ns),
        _ => instances.iter().try_fold(0.0, |sum, instance| {
            Some(sum + evaluate_pooled(std::slice::from_ref(instance), count, duration_ns)?)
        }),
    };
    value.map_or(MetricValue::Undefined, MetricValue::Number)
}

/// The formula over the sums of its inputs and of the time.
fn evaluate_pooled(
    instances: &[&PlannedMetric],
    count: &dyn Fn(u32) -> Option<f64>,
    duration_ns: f64,
) -> Option<f64> {
    let representative = instances.first()?;
    if instances.iter().any(|instance| instance.formula != representative.formula) {
        return None;
    }
    let formula: Formula = representative.formula.parse().ok()?;
    let sum = |input_value: &dyn Fn(&PlannedMetric) -> Option<f64>| -> Option<f64> {
        instances.iter().try_fold(0.0, |sum, instance| Some(sum + input_value(instance)?))
    };
    let n = instances.len() as f64;
    formula.evaluate(&|name| {
        if name == DURATION_NS {
            return Some(n * duration_ns);
        }
        if representative.constants.contains_key(name) {
            return Some(sum(&|instance| instance.constants.get(name).copied())? / n);
        }
        sum(&|instance| {
            let input = instance.inputs.iter().find(|input| input.name == name)?;
            count(input.counter?)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(formula: &str, across: Across, inputs: &[(&str, Option<u32>)]) -> PlannedMetric {
        let input = |&(name, counter): &(&str, _)| Input { name: name.to_owned(), counter };
        PlannedMetric {
            name: "m".to_owned(),
            about: String::new(),
            unit: "1".to_owned(),
            formula: formula.to_owned(),
            across,
            family: "f".to_owned(),
            pmu: "f_0".to_owned(),
            filter: String::new(),
            cpu: 0,
            socket: Some(0),
            per_cpu: false,
            inputs: inputs.iter().map(input).collect(),
            constants: BTreeMap::from([("slots".to_owned(), 8.0)]),
        }
    }

    /// Counter 0 has 10, 1 has 20 and so on; 9 did not run, 7 has a count of 0.
    fn count(counter: u32) -> Option<f64> {
        match counter {
            9 => None,
            7 => Some(0.0),
            _ => Some(f64::from(counter + 1) * 10.0),
        }
    }

    #[test]
    fn instances_of_a_bandwidth_add_up_and_of_a_ratio_are_pooled() {
        let metric_on =
            |formula, across, a, b| planned(formula, across, &[("a", Some(a)), ("b", Some(b))]);
        let rate = "(a + b) / duration_ns";
        let (first_rate, second_rate) =
            (metric_on(rate, Across::Sum, 0, 1), metric_on(rate, Across::Sum, 2, 3));
        assert_eq!(evaluate_metric(&[&first_rate], &count, 5.0), MetricValue::Number(6.0));
        assert_eq!(
            evaluate_metric(&[&first_rate, &second_rate], &count, 5.0),
            MetricValue::Number(20.0)
        );
        let (first_ratio, second_ratio) =
            (metric_on("a / b", Across::Pool, 0, 1), metric_on("a / b", Across::Pool, 2, 0));
        assert_eq!(evaluate_metric(&[&first_ratio], &count, 5.0), MetricValue::Number(0.5));
        assert_eq!(
            evaluate_metric(&[&first_ratio, &second_ratio], &count, 5.0),
            MetricValue::Number(40.0 / 30.0)
        );
        // The time of two clocks is twice the time.
        let clock = |a| planned("a / duration_ns", Across::Pool, &[("a", Some(a))]);
        assert_eq!(evaluate_metric(&[&clock(0), &clock(2)], &count, 5.0), MetricValue::Number(4.0));
        let slots = planned("a / slots", Across::Pool, &[("a", Some(3))]);
        assert_eq!(evaluate_metric(&[&slots, &slots], &count, 5.0), MetricValue::Number(10.0));
    }

    #[test]
    fn nothing_to_divide_by_is_undefined() {
        let ratio = planned("a / b", Across::Pool, &[("a", Some(0)), ("b", Some(7))]);
        assert_eq!(evaluate_metric(&[&ratio], &count, 5.0), MetricValue::Undefined);
        let rate = planned("a / duration_ns", Across::Sum, &[("a", Some(0))]);
        assert_eq!(evaluate_metric(&[&rate], &count, 0.0), MetricValue::Undefined);
        assert_eq!(evaluate_metric(&[], &count, 5.0), MetricValue::Undefined);
        let doubled = planned("a * 2", Across::Pool, &[("a", Some(0))]);
        let plain = planned("a", Across::Pool, &[("a", Some(0))]);
        assert_eq!(evaluate_metric(&[&plain, &doubled], &count, 5.0), MetricValue::Undefined);
        // One pool with a divisor of 0 does not make the result undefined.
        let fine = planned("a / b", Across::Pool, &[("a", Some(0)), ("b", Some(1))]);
        assert_eq!(evaluate_metric(&[&ratio, &fine], &count, 5.0), MetricValue::Number(1.0));
    }

    #[test]
    fn missing_inputs_are_named_once() {
        let without_a = planned("a / b", Across::Pool, &[("a", None), ("b", Some(0))]);
        let without_b = planned("a / b", Across::Pool, &[("a", Some(0)), ("b", Some(9))]);
        let missing =
            |names: &[&str]| MetricValue::Missing(names.iter().map(|&n| n.into()).collect());
        assert_eq!(evaluate_metric(&[&without_a], &count, 5.0), missing(&["a"]));
        assert_eq!(
            evaluate_metric(&[&without_a, &without_b, &without_a], &count, 5.0),
            missing(&["a", "b"])
        );
        assert_eq!(without_a.missing_inputs(), ["a"]);
    }

    #[test]
    fn an_instance_that_did_not_run_is_left_out() {
        let rate = |counter| planned("a / duration_ns", Across::Sum, &[("a", Some(counter))]);
        assert_eq!(evaluate_metric(&[&rate(0), &rate(9)], &count, 5.0), MetricValue::Number(2.0));
        let clock = |counter| planned("a / duration_ns", Across::Pool, &[("a", Some(counter))]);
        assert_eq!(evaluate_metric(&[&clock(9), &clock(0)], &count, 5.0), MetricValue::Number(2.0));
    }

    #[test]
    fn constants_come_from_the_machine_or_the_catalog() {
        let constant_of = |caps: Option<&str>| Constant {
            name: "n".to_owned(),
            caps: caps.map(str::to_owned),
            bits_of: None,
            processors: Vec::new(),
            value: Some(8.0),
        };
        let assert_value = |value: Option<f64>, expected: f64| {
            assert!(value.is_some_and(|value| (value - expected).abs() < 1e-12), "{value:?}");
        };
        let caps = |text: &str| BTreeMap::from([("slots".to_owned(), text.to_owned())]);
        assert_value(constant_of(Some("slots")).resolve_value(&caps("0x00000005"), None), 5.0);
        for unsaid in ["0x00000000", "many"] {
            assert_value(constant_of(Some("slots")).resolve_value(&caps(unsaid), None), 8.0);
        }
        assert_value(constant_of(None).resolve_value(&BTreeMap::new(), Some(0x3ff)), 10.0);
        assert_value(constant_of(None).resolve_value(&BTreeMap::new(), Some(0)), 8.0);
        assert_value(constant_of(None).resolve_value(&BTreeMap::new(), None), 8.0);
        let unknown = Constant { value: None, ..constant_of(Some("slots")) };
        assert_eq!(unknown.resolve_value(&caps("0x00000000"), None), None);
    }
}
