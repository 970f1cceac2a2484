//! Objects of `--json`, one per line.

use serde::Serialize;

use crate::text::escape_json;

/// An object whose keys stand in this order: `json_object! { key: value, .. }`.
macro_rules! json_object {
    ($($key:ident: $value:expr),* $(,)?) => {{
        #[allow(non_camel_case_types, reason = "the type of a field has the name of its key")]
        let object = {
            #[derive(serde::Serialize)]
            struct JsonObject<$($key),*> {
                $($key: $key),*
            }
            JsonObject { $($key: $value),* }
        };
        object
    }};
}
pub(crate) use json_object;

/// The lines of objects.
///
/// # Errors
///
/// Never in practice: only numbers and text are written.
pub(super) fn json_lines<T: Serialize>(
    objects: impl IntoIterator<Item = T>,
) -> serde_json::Result<String> {
    let mut lines = String::new();
    for object in objects {
        lines.push_str(&escape_json(&serde_json::to_string(&object)?));
        lines.push('\n');
    }
    Ok(lines)
}
