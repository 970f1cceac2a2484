//! Variables of the environment in the configuration, as Kubernetes writes them: `$(POD_IP)`.

use std::net::Ipv6Addr;

/// The text with the values of its variables.
///
/// A container learns the address of its node from its environment alone. A variable without a
/// value stays as it is, as in Kubernetes, and so does one whose value could end a string of TOML.
/// An IPv6 address gets brackets, because a port follows it.
pub(super) fn expanded(text: &str, of: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("$(") {
        out.push_str(before);
        let found = after.split_once(')');
        if let Some((value, tail)) = found.and_then(|(name, tail)| Some((value(of(name)?)?, tail)))
        {
            out.push_str(&value);
            rest = tail;
        } else {
            out.push_str("$(");
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

fn value(text: String) -> Option<String> {
    if text.parse::<Ipv6Addr>().is_ok() {
        return Some(format!("[{text}]"));
    }
    let is_plain = text.chars().all(|it| it.is_ascii_alphanumeric() || "._-".contains(it));
    (is_plain && !text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::expanded;

    #[test]
    fn variables_have_their_values() {
        let of = |name: &str| {
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
            assert_eq!(expanded(text, of), wanted);
        }
    }
}
