"""Renders the Helm chart with Helm's own library and validates it against the schemas of Kubernetes.

Prints one JSON object: for each set of values the configuration and the pod.
"""

import json
import sys

import helm_python
import kubernetes_validate
import yaml

# The oldest that the chart allows, and the newest whose schemas the validator has.
KUBERNETES = ["1.25", "1.30", "1.37"]

FULL = {
    "cluster": 'with "quotes"',
    "containerRuntime": "crio",
    "hostNetwork": False,
    "record": {"groups": ["mem", "pcie"], "events": ["page-faults"], "tick": "2ms", "method": "residency", "cgroupDepth": 0},
    "ring": {"enabled": True, "keep": 12, "mode": "0640"},
    "kept": {"directory": "/var/lib/uncore-trace/kept", "quota": "1GiB"},
    "triggers": [{"name": "full", "when": "pcie_read_bandwidth > 5GB/s for 5ms", "before": "10s"}],
    "metrics": {"enabled": True, "annotations": True, "podMonitor": True, "owners": 5},
    "upload": {
        "enabled": True,
        "url": "s3://bucket/prefix",
        "endpoint": "http://127.0.0.1:5000",
        "secret": "aws",
        "keepLocal": False,
    },
    "extraCapabilities": ["SYS_PTRACE"],
    "seLinuxOptions": {"type": "spc_t"},
    "priorityClassName": "system-node-critical",
    "imagePullSecrets": [{"name": "registry"}],
    "affinity": {"nodeAffinity": {}},
    "podAnnotations": {"a": "b"},
}
VALUES = {"default": {}, "names off": {"containerRuntime": ""}, "full": FULL}

# Each is refused, for this reason.
REFUSED = [
    ({"upload": {"enabled": True}}, "/upload/url"),
    ({"recrod": {}}, "recrod"),
    ({"containerRuntime": "rkt"}, "/containerRuntime"),
    ({"metrics": {"podMonitor": True}}, "set metrics.enabled too"),
    ({"triggers": [{"name": "a"}]}, "set ring.enabled too"),
    ({"kept": {"directory": "here"}}, "/kept/directory"),
]

# No schema of Kubernetes: the operator's own resources.
FOREIGN = {"PodMonitor"}


def objects(chart, values):
    rendered = chart.render(values, name="fabric", namespace="monitoring")
    texts = [text for path, text in rendered.items() if not path.endswith(".txt")]
    return [it for text in texts for it in yaml.safe_load_all(text) if it is not None]


def validate(found):
    for it in found:
        if it["kind"] not in FOREIGN:
            for version in KUBERNETES:
                # An unknown field is an error too: a cluster would drop it without a word.
                kubernetes_validate.validate(it, version, strict=True)


def one(found, kind):
    (it,) = [it for it in found if it["kind"] == kind]
    return it


def refuse(chart, values, reason):
    try:
        # An installation compares values with the schema before it renders.
        chart.validate_schema(values)
        objects(chart, values)
    except helm_python.HelmError as error:
        if reason not in str(error):
            sys.exit(f"{values} is refused for another reason than {reason}: {error}")
        return
    sys.exit(f"{values} is not refused")


def main(path):
    report = helm_python.lint(path, strict=True)
    wrong = [it for it in report["messages"] if it["severity"] > 1] + report["errors"]
    if wrong:
        sys.exit(f"lint: {wrong}")
    chart = helm_python.Chart.load(path)
    for values, reason in REFUSED:
        refuse(chart, values, reason)
    answer = {}
    for name, values in VALUES.items():
        chart.validate_schema(values)
        found = objects(chart, values)
        try:
            validate(found)
        except kubernetes_validate.ValidationError as error:
            sys.exit(f"{name}: {error}")
        kinds = sorted(it["kind"] for it in found)
        answer[name] = {
            "kinds": kinds,
            "config": one(found, "ConfigMap")["data"]["agent.toml"],
            "pod": one(found, "DaemonSet")["spec"]["template"],
        }
    print(json.dumps(answer))


main(sys.argv[1])
