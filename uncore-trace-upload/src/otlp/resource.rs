//! Who reports: attributes of the resource that the agent does not know.

use prost::Message as _;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use uncore_trace::otlp::{AnyValue, ExportRequest, KeyValue, attribute};

use super::settings::PushSettings;

/// The namespace of ids of services (semantic conventions, `service.instance.id`).
const NAMESPACE: u128 = 0x4d63_009a_8d0f_11ee_aad7_4c79_6ed8_e320;

/// The request of the agent with all attributes of the resource. What is no request stays as it is:
/// the collector says what is wrong with it.
pub(super) fn complete_request(request: Vec<u8>, settings: &PushSettings) -> Vec<u8> {
    let Ok(mut decoded) = ExportRequest::decode(request.as_slice()) else { return request };
    // The agent has one resource.
    decoded.resource_metrics.truncate(1);
    for metrics in &mut decoded.resource_metrics {
        let attributes = &mut metrics.resource.get_or_insert_default().attributes;
        let host = attribute_text(attributes, "host.name").unwrap_or_default().to_owned();
        set_attribute(attributes, "service.instance.id", &instance_id(&settings.cluster, &host));
        for (name, value) in &settings.attributes {
            set_attribute(attributes, name, value);
        }
    }
    decoded.encode_to_vec()
}

/// A UUID (RFC 9562, version 5) of the agent of a host, so that it is the same after a restart.
fn instance_id(cluster: &str, host: &str) -> String {
    let mut bytes = NAMESPACE.to_be_bytes().to_vec();
    bytes.extend(format!("{cluster}/{host}").bytes());
    let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, &bytes);
    let mut id =
        digest.as_ref().iter().take(16).fold(0_u128, |id, byte| id << 8 | u128::from(*byte));
    // The version and the variant.
    id = id & !(0xf_u128 << 76) | 5_u128 << 76;
    id = id & !(0b11_u128 << 62) | 0b10_u128 << 62;
    let hex = format!("{id:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

fn attribute_text<'a>(attributes: &'a [KeyValue], name: &str) -> Option<&'a str> {
    let attribute = attributes.iter().find(|candidate| candidate.key == name)?;
    attribute.value.as_ref()?.string_value.as_deref()
}

/// Sets an attribute; each is there once.
fn set_attribute(attributes: &mut Vec<KeyValue>, name: &str, value: &str) {
    match attributes.iter_mut().find(|candidate| candidate.key == name) {
        Some(existing) => existing.value = Some(AnyValue { string_value: Some(value.to_owned()) }),
        None => attributes.push(attribute(name, value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_is_named_by_cluster_and_host() {
        // python3 -c "import uuid;
        // print(uuid.uuid5(uuid.UUID('4d63009a-8d0f-11ee-aad7-4c796ed8e320'), 'lab/node-7'))"
        assert_eq!(instance_id("lab", "node-7"), "c744dbd3-1ce0-5343-a1ca-7dbc0ae78ed2");
        assert_ne!(instance_id("lab", "node-7"), instance_id("lab", "node-8"));
    }

    #[test]
    fn an_attribute_that_is_set_again_is_replaced() {
        let mut attributes = vec![attribute("a", "1")];
        set_attribute(&mut attributes, "a", "2");
        set_attribute(&mut attributes, "b", "3");
        assert_eq!(attributes, [attribute("a", "2"), attribute("b", "3")]);
    }
}
