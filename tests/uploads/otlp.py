"""A receiver of OTLP over HTTP, with the definitions of another implementation (opentelemetry-proto of
PyPI), and a comparison of what it got with the page of the agent.

    receive ANSWERS [CERTIFICATE KEY]   prints its port, then a line of JSON for each request
    compare PAGE REQUEST                files: the page of the agent, and a line of the receiver
"""

import gzip, http.server, json, ssl, sys, time
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as service
from opentelemetry.proto.metrics.v1 import metrics_pb2


def unknown(message):
    """The number of fields that the definitions lack."""
    count = len(UnknownFieldSet(message))
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            count += sum(map(unknown, value if field.is_repeated else [value]))
    return count


def attributes(pairs):
    found = {pair.key: pair.value.string_value for pair in pairs}
    assert len(found) == len(pairs), "an attribute is there twice"
    return found


def metric(it):
    kind = it.WhichOneof("data")
    data = getattr(it, kind)
    points = [
        {
            "attributes": attributes(point.attributes),
            "start": point.start_time_unix_nano,
            "time": point.time_unix_nano,
            "value": getattr(point, point.WhichOneof("value")),
        }
        for point in data.data_points
    ]
    if kind == "sum":
        assert data.is_monotonic
        assert data.aggregation_temporality == metrics_pb2.AGGREGATION_TEMPORALITY_CUMULATIVE
    return {"name": it.name, "unit": it.unit, "kind": kind, "points": points}


def decoded(body):
    request = service.ExportMetricsServiceRequest.FromString(body)
    assert unknown(request) == 0, request
    (resource,) = request.resource_metrics
    (scope,) = resource.scope_metrics
    return {
        "resource": attributes(resource.resource.attributes),
        "scope": scope.scope.name,
        "metrics": [metric(it) for it in scope.metrics],
    }


class Receiver(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        plain = gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body
        said = {"path": self.path, "headers": {k.lower(): v for k, v in self.headers.items()}}
        print(json.dumps({"at": time.monotonic(), "size": len(body), **said, **decoded(plain)}), flush=True)
        answer = ANSWERS.pop(0) if len(ANSWERS) > 1 else ANSWERS[0]
        response = service.ExportMetricsServiceResponse()
        if "rejected" in answer:
            response.partial_success.rejected_data_points = answer["rejected"]
            response.partial_success.error_message = answer["message"]
        out = response.SerializeToString()
        status = answer.get("status", 200)
        if status != 200:
            # google.rpc.Status with its field 2, the message.
            message = answer.get("message", "").replace("ECHO", self.headers.get("authorization", ""))
            out = b"\x12" + bytes([len(message)]) + message.encode()
        self.send_response(status)
        headers = {"content-type": "application/x-protobuf", **answer.get("headers", {})}
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(out)))
        self.end_headers()
        self.wfile.write(out)

    def log_message(self, *_):
        pass


def receive(certificate=None, key=None):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    print(server.server_port, flush=True)
    server.serve_forever()


def compare(page, request):
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    expected, kinds = {}, {}
    for family in text_string_to_metric_families(page):
        kinds[family.name] = "sum" if family.type == "counter" else "gauge"
        for sample in family.samples:
            labels = {name: value for name, value in sample.labels.items() if value}
            expected[family.name, frozenset(labels.items())] = sample.value
    found = {}
    for metric in request["metrics"]:
        assert metric["kind"] == kinds[metric["name"]], metric
        assert metric["points"], metric
        for point in metric["points"]:
            labels = {k: v for k, v in point["attributes"].items() if "." not in k}
            key = metric["name"], frozenset(labels.items())
            assert key not in found, key
            found[key] = point["value"]
            is_sum = metric["kind"] == "sum"
            assert is_sum == (point["start"] > 0), point
            assert 1e18 < point["time"] and point["start"] <= point["time"], point
    assert found.keys() == expected.keys(), found.keys() ^ expected.keys()
    # The text of a number may be off by its last bit.
    differ = {key for key in found if abs(found[key] - expected[key]) > 1e-14 * abs(expected[key])}
    assert not differ, differ
    print(len(found))


if sys.argv[1] == "receive":
    ANSWERS = json.loads(sys.argv[2])
    receive(*sys.argv[3:])
else:
    with open(sys.argv[2]) as page, open(sys.argv[3]) as request:
        compare(page.read(), json.load(request))
