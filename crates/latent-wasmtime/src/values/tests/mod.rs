//! The form, rule by rule and limit by limit, on the types of real components.

mod duplicates;
mod forms;
mod limits;
mod page;
mod refusals;
mod round_trip;
mod signatures;
mod types;

use wasmtime::component::Val;

use super::{Found, Signature, ValuesError, ValuesLimits, ValuesProblem};
use types::{Wit, signature};

/// Reads `json` as the one argument of a function that takes `wit`.
fn read(wit: &Wit, json: &str) -> Result<Val, ValuesError> {
    let values = signature(std::slice::from_ref(wit)).decode(format!("[{json}]").as_bytes(), &ValuesLimits::default())?;
    Ok(values.into_iter().next().unwrap())
}

/// Writes `value` as the one result of a function that returns `wit`.
fn written(wit: &Wit, value: &Val) -> String {
    let text = signature(std::slice::from_ref(wit)).encode(std::slice::from_ref(value), &ValuesLimits::default()).unwrap();
    let text = std::str::from_utf8(&text).unwrap();
    text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap().to_owned()
}

fn both_ways(signature: &Signature, json: &str, limits: &ValuesLimits) -> (Option<ValuesProblem>, Option<ValuesProblem>) {
    let values = signature.decode(json.as_bytes(), &ValuesLimits::default()).unwrap();
    let read = signature.decode(json.as_bytes(), limits).err().map(|error| error.problem);
    let written = signature.encode(&values, limits).err().map(|error| error.problem);
    (read, written)
}
