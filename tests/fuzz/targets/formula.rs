//! Formulas of metrics: a parsed formula has a finite value or none.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uncore_trace::catalog::formula::Formula;

fuzz_target!(|input: (&str, f64)| {
    let (text, input) = input;
    let Ok(formula) = text.parse::<Formula>() else { return };
    let value = formula.evaluate(&|name| Some(input * name.len() as f64));
    assert!(value.is_none_or(f64::is_finite), "{text:?} of {input}: {value:?}");
});
