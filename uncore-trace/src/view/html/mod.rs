//! A page for a browser in one file: document, style, data and script.
//!
//! Guarantees: the policy in the document lets a browser run only this script and use only this
//! style, load and send nothing, and parse no HTML from strings; recorded text is only in a data
//! block, which browsers do not execute.

use std::io::{self, Write};

use sha2::{Digest as _, Sha256};

pub(in crate::view) mod json;

use json::Json;

/// The parts of a page beside its data.
#[derive(Debug, Clone, Copy)]
pub(super) struct Page {
    /// The document, with placeholders `@NAME@`: policy, style, data, script.
    pub(super) document: &'static str,
    /// Style sheets after those of all pages, in the order of the cascade.
    pub(super) styles: &'static [&'static str],
    /// Libraries with their licences, each in its own scope.
    pub(super) libraries: &'static [Library],
    /// Scripts after those of all pages, in the order of execution.
    pub(super) scripts: &'static [&'static str],
}

/// A library.
#[derive(Debug, Clone, Copy)]
pub(super) struct Library {
    pub(super) name: &'static str,
    pub(super) licence: &'static str,
    pub(super) script: &'static str,
}

/// Colours, texts, buttons and tables of all pages.
const STYLE: &str = include_str!("base.css");

/// Number formats, elements, and the dark and light theme.
const SCRIPTS: [&str; 2] = [include_str!("words.js"), include_str!("theme.js")];

/// Writes a page; `data` writes its data.
pub(super) fn write_document(
    writer: &mut dyn Write,
    page: &Page,
    data: impl FnOnce(&mut Json<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let (style, script) = (page.page_style(), page.page_script());
    let policy = content_policy(&style, &script);
    let mut data = Some(data);
    for (index, piece) in page.document.split('@').enumerate() {
        match piece {
            _ if index % 2 == 0 => writer.write_all(piece.as_bytes())?,
            "policy" => writer.write_all(policy.as_bytes())?,
            "style" => writer.write_all(style.as_bytes())?,
            "script" => writer.write_all(script.as_bytes())?,
            "data" => {
                if let Some(data) = data.take() {
                    Json::new(writer).write_object(data)?;
                }
            }
            unknown => return Err(io::Error::other(format!("the document has @{unknown}@"))),
        }
    }
    Ok(())
}

impl Page {
    fn page_style(&self) -> String {
        [&[STYLE], self.styles].concat().join("\n")
    }

    /// All scripts as one; the page's own names are in a scope of their own.
    fn page_script(&self) -> String {
        let library = |Library { name, licence, script }: &Library| {
            format!("/*! {name}\n{}\n*/\n{script}\n", licence.trim())
        };
        let own_script = [&SCRIPTS, self.scripts].concat().join("\n");
        let own_scope = format!("(() => {{\n\"use strict\";\n{own_script}}})();\n");
        self.libraries.iter().map(library).chain([own_scope]).collect()
    }
}

/// The content security policy (W3C, CSP Level 3) of the page.
fn content_policy(style: &str, script: &str) -> String {
    let hash = |text: &str| format!("'sha256-{}'", encode_base64(&Sha256::digest(text.as_bytes())));
    format!(
        "default-src 'none'; script-src {}; style-src {}; base-uri 'none'; form-action 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'",
        hash(script),
        hash(style)
    )
}

/// RFC 4648, section 4.
fn encode_base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = (0..3).fold(0, |bits, position| {
            bits << 8 | chunk.get(position).map_or(0, |byte| u32::from(*byte))
        });
        for digit in 0..4 {
            let used = digit <= chunk.len();
            let six = (bits >> (18 - 6 * digit) & 63) as usize;
            text.push(if used { char::from(DIGITS[six]) } else { '=' });
        }
    }
    text
}

/// Checks that tests of all pages use.
#[cfg(test)]
pub(super) mod checks;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_standard() {
        for (text, encoded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode_base64(text.as_bytes()), encoded);
        }
    }
}
