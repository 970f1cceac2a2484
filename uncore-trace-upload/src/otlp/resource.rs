//! Who reports: attributes of the resource that the agent does not know.

use bytes::Bytes;
use prost::Message;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use uncore_trace_recording::otlp::{AnyValue, KeyValue, Resource, attribute};
use uncore_trace_recording::protobuf;
use uncore_trace_recording::protobuf::NestedFields;

use super::settings::PushSettings;

/// The namespace of ids of services (semantic conventions, `service.instance.id`).
const NAMESPACE: u128 = 0x4d63_009a_8d0f_11ee_aad7_4c79_6ed8_e320;

/// A request, of which only the resource is decoded: metrics are passed on as they are.
#[derive(Clone, PartialEq, Message)]
struct RequestEnvelope {
    #[prost(message, repeated, tag = "1")]
    resource_metrics: Vec<SealedMetrics>,
}

/// Metrics of one resource.
#[derive(Clone, PartialEq, Message)]
struct SealedMetrics {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    /// Messages of the type `ScopeMetrics`. They are encoded as bytes are.
    #[prost(bytes = "bytes", repeated, tag = "2")]
    scope_metrics: Vec<Bytes>,
}

/// Most fields of a request and its resource. The agent's have some ten.
const FIELDS: usize = 4096;

const REQUEST: NestedFields = NestedFields(&[(1, RESOURCE_METRICS)]);
const RESOURCE_METRICS: NestedFields =
    NestedFields(&[(1, NestedFields(&[(1, NestedFields(&[(2, NestedFields(&[]))]))]))]);

/// The request of the agent with all attributes of the resource. What is no request stays as it is:
/// the collector says what is wrong with it. An error is a part of a line.
pub(super) fn complete_request(
    request: Vec<u8>,
    settings: &PushSettings,
) -> Result<Vec<u8>, String> {
    complete_attributes(request, &settings.cluster, &settings.attributes)
}

/// As [`complete_request`], with the name of the cluster and the attributes of the user.
fn complete_attributes(
    request: Vec<u8>,
    cluster: &str,
    user_attributes: &[(String, String)],
) -> Result<Vec<u8>, String> {
    match protobuf::count_fields(&request, &REQUEST, FIELDS) {
        Ok(Some(_)) => {}
        Ok(None) => return Err(format!("they have more than {FIELDS} fields of resources")),
        Err(_) => return Ok(request),
    }
    let request = Bytes::from(request);
    let Ok(mut decoded) = RequestEnvelope::decode(request.clone()) else {
        return Ok(request.into());
    };
    // The agent has one resource.
    decoded.resource_metrics.truncate(1);
    for metrics in &mut decoded.resource_metrics {
        let attributes = &mut metrics.resource.get_or_insert_default().attributes;
        let host = attribute_text(attributes, "host.name").unwrap_or_default().to_owned();
        set_attribute(attributes, "service.instance.id", &instance_id(cluster, &host));
        for (name, value) in user_attributes {
            set_attribute(attributes, name, value);
        }
    }
    Ok(decoded.encode_to_vec())
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
    use uncore_trace_recording::otlp::{ExportRequest, OtlpMetric, ResourceMetrics, ScopeMetrics};

    use super::*;

    fn complete_for_lab(request: &[u8]) -> Result<Vec<u8>, String> {
        complete_attributes(request.to_vec(), "lab", &[("a".to_owned(), "1".to_owned())])
    }

    /// A request with these attributes and these metrics.
    fn make_request(attributes: Vec<KeyValue>, metrics: Vec<OtlpMetric>) -> ExportRequest {
        let resource = Some(Resource { attributes });
        let scope_metrics = vec![ScopeMetrics { scope: None, metrics }];
        ExportRequest { resource_metrics: vec![ResourceMetrics { resource, scope_metrics }] }
    }

    #[test]
    fn metrics_are_passed_on_as_they_are() {
        let metric = OtlpMetric { name: "uncore_trace".to_owned(), ..OtlpMetric::default() };
        let sent = make_request(vec![attribute("host.name", "node-7")], vec![metric]);
        let decoded =
            ExportRequest::decode(complete_for_lab(&sent.encode_to_vec()).unwrap().as_slice());
        let id = attribute("service.instance.id", "c744dbd3-1ce0-5343-a1ca-7dbc0ae78ed2");
        let attributes = vec![attribute("host.name", "node-7"), id, attribute("a", "1")];
        let metrics = sent.resource_metrics[0].scope_metrics[0].metrics.clone();
        assert_eq!(decoded.unwrap(), make_request(attributes, metrics));
        // Of another version: the metrics have a field 1000, which nothing here knows.
        let newer = [0x0a, 5, 0x12, 3, 0xc0, 0x3e, 0x01];
        let passed = complete_for_lab(&newer).unwrap();
        assert!(passed.windows(5).any(|bytes| bytes == &newer[2..]), "{passed:x?}");
    }

    #[test]
    fn a_request_with_too_many_fields_is_refused_before_it_is_decoded() {
        let refused = "they have more than 4096 fields of resources";
        let many = make_request(vec![KeyValue::default(); FIELDS], Vec::new());
        assert_eq!(complete_for_lab(&many.encode_to_vec()).err().as_deref(), Some(refused));
        let bomb = [0x0a, 0].repeat(FIELDS + 1);
        assert_eq!(complete_for_lab(&bomb).err().as_deref(), Some(refused));
        // Metrics are no fields of resources, and what is no request stays as it is.
        let metrics = make_request(Vec::new(), vec![OtlpMetric::default(); 2 * FIELDS]);
        complete_for_lab(&metrics.encode_to_vec()).unwrap();
        assert_eq!(complete_for_lab(&[0xff, 0xff]).unwrap(), [0xff, 0xff]);
    }

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
