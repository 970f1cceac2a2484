//! Variables of the environment in the configuration, as Kubernetes writes them: `$(POD_IP)`.

use std::net::Ipv6Addr;

/// The text with the values of its variables.
///
/// A container learns the address of its node from its environment alone. A variable without a
/// value stays as it is, as in Kubernetes, and so does one whose value could end a string of TOML.
/// An IPv6 address gets brackets, because a port follows it.
pub(super) fn expand_variables(
    text: &str,
    variable_value: impl Fn(&str) -> Option<String>,
) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut unexpanded = text;
    while let Some((literal, variable_begin)) = unexpanded.split_once("$(") {
        expanded.push_str(literal);
        let expansion = variable_begin.split_once(')');
        if let Some((value, tail)) =
            expansion.and_then(|(name, tail)| Some((escaped_value(variable_value(name)?)?, tail)))
        {
            expanded.push_str(&value);
            unexpanded = tail;
        } else {
            expanded.push_str("$(");
            unexpanded = variable_begin;
        }
    }
    expanded.push_str(unexpanded);
    expanded
}

fn escaped_value(text: String) -> Option<String> {
    if text.parse::<Ipv6Addr>().is_ok() {
        return Some(format!("[{text}]"));
    }
    let is_plain = text
        .chars()
        .all(|character| character.is_ascii_alphanumeric() || "._-".contains(character));
    (is_plain && !text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::expand_variables;

    #[test]
    fn variables_have_their_values() {
        let variable_value = |name: &str| {
            let value = match name {
                "POD_IP" => "192.0.2.7",
                "SIX" => "2001:db8::7",
                "NODE" => "node-7.example",
                "EMPTY" => "",
                "WRONG" => "x'\nbeyond-loopback = true",
                _ => return None,
            };
            Some(value.to_owned())
        };
        for (text, wanted) in [
            ("listen = '$(POD_IP):9762'", "listen = '192.0.2.7:9762'"),
            ("listen = '$(SIX):9762'", "listen = '[2001:db8::7]:9762'"),
            ("$(NODE)$(POD_IP)", "node-7.example192.0.2.7"),
            ("$($(NODE))", "$(node-7.example)"),
            ("# $(OTHER) $( $(EMPTY) $(WRONG)", "# $(OTHER) $( $(EMPTY) $(WRONG)"),
            ("$(NODE", "$(NODE"),
            ("$NODE ${NODE}", "$NODE ${NODE}"),
        ] {
            assert_eq!(expand_variables(text, variable_value), wanted);
        }
    }
}
