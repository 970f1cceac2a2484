"""Renders the Helm chart with Helm's own library and validates it against the schemas of Kubernetes.

Prints one JSON object: for each set of values the configuration and the pod.
"""

import json
import pathlib
import sys
import tomllib

import helm_python
import kubernetes_validate
import yaml

# The oldest that the chart allows, and the newest whose schemas the validator has.
KUBERNETES = ["1.25", "1.30", "1.37"]

FULL = {
    "cluster": 'with "quotes"',
    "containerRuntime": "crio",
    "podResources": True,
    "hostNetwork": False,
    "record": {"groups": ["mem", "pcie"], "events": ["page-faults"], "tick": "2ms", "method": "residency", "cgroupDepth": 0},
    "ring": {"enabled": True, "keep": 12, "mode": "0640"},
    "kept": {"directory": "/var/lib/uncore-trace/kept", "quota": "1GiB"},
    "triggers": [{"name": "full", "when": "pcie_read_bandwidth > 5GB/s for 5ms", "before": "10s"}],
    "metrics": {"enabled": True, "annotations": True, "monitor": "PodMonitor", "owners": 5},
    "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1234:role/upload"}},
    "upload": {
        "enabled": True,
        "url": "s3://bucket/prefix",
        "endpoint": "http://127.0.0.1:5000",
        "secret": "aws",
        "keepLocal": False,
    },
    "otlp": {"endpoint": "http://collector.example:4318", "interval": "30s"},
    "extraCapabilities": ["SYS_PTRACE"],
    "seLinuxOptions": {"type": "spc_t"},
    "priorityClassName": "system-node-critical",
    "imagePullSecrets": [{"name": "registry"}],
    "affinity": {"nodeAffinity": {}},
    "podAnnotations": {"a": "b"},
    "identity": {"trusted": ["/system.slice/ci.service"]},
}
SERVICE = {
    "metrics": {"enabled": True, "monitor": "ServiceMonitor", "address": "0.0.0.0"},
    "serviceAccount": {"create": False, "name": "own"},
}
VALUES = {
    "default": {},
    "names off": {"containerRuntime": ""},
    "pod network": {"hostNetwork": False, "serviceAccount": {"create": False}},
    "service": SERVICE,
    "push": {"otlp": {"endpoint": "https://collector.example:4318"}},
    "canary": {"record": {"canary": True}},
    "full": FULL,
}
# Of each set the objects, the account of the pod, the address of metrics, and the host that liveness is asked of.
WANTED = {
    "default": ("ConfigMap DaemonSet ServiceAccount", "fabric-uncore-trace", "127.0.0.1:9762", "127.0.0.1"),
    "names off": ("ConfigMap DaemonSet ServiceAccount", "fabric-uncore-trace", "127.0.0.1:9762", "127.0.0.1"),
    # The kubelet does not reach the loopback address of a pod.
    "pod network": ("ConfigMap DaemonSet", "default", "127.0.0.1:9762", None),
    "service": ("ConfigMap DaemonSet Service ServiceMonitor", "own", "0.0.0.0:9762", "of the pod"),
    "push": ("ConfigMap DaemonSet ServiceAccount", "fabric-uncore-trace", "127.0.0.1:9762", "127.0.0.1"),
    "canary": ("ConfigMap DaemonSet ServiceAccount", "fabric-uncore-trace", "127.0.0.1:9762", "127.0.0.1"),
    "full": ("ConfigMap DaemonSet PodMonitor ServiceAccount", "fabric-uncore-trace", "$(POD_IP):9762", "of the pod"),
}

# Each is refused, for this reason.
REFUSED = [
    ({"upload": {"enabled": True}}, "/upload/url"),
    ({"otlp": {"endpoint": "collector:4318"}}, "/otlp/endpoint"),
    ({"recrod": {}}, "recrod"),
    ({"containerRuntime": "rkt"}, "/containerRuntime"),
    ({"metrics": {"monitor": "PodMonitor"}}, "set metrics.enabled too"),
    ({"metrics": {"monitor": "Probe"}}, "/metrics/monitor"),
    ({"serviceAccount": {"annotations": {"a": 1}}}, "/serviceAccount/annotations/a"),
    ({"triggers": [{"name": "a"}]}, "set ring.enabled too"),
    ({"kept": {"directory": "here"}}, "/kept/directory"),
    ({"record": {"canary": "yes"}}, "/record/canary"),
    ({"record": {"canary": True, "cgroupDepth": 3}}, "/record/cgroupDepth"),
    ({"identity": {"trusted": ["system.slice"]}}, "/identity/trusted/0"),
    ({"identity": {"trusted": ["/sys/fs/cgroup/system.slice"]}}, "/identity/trusted/0"),
    ({"identity": {"trust": []}}, "trust"),
]

# Changes of FULL that the agent applies while it runs, and changes that need another one.
APPLIED = [
    {"kept": {"quota": "2GiB"}},
    {"kept": {"pause": "1min"}},
    {"rollup": {"window": "20s"}},
    {"rollup": {"owners": 7}},
    {"rollup": {"keep": "1day"}},
    {"metrics": {"owners": 7}},
]
REPLACING = [
    {"record": {"tick": "4ms"}},
    {"record": {"canary": True, "cgroupDepth": None}},
    {"identity": {"trusted": []}},
    {"ring": {"keep": 13}},
    {"kept": {"directory": "/var/lib/uncore-trace/spans"}},
    {"rollup": {"mode": "0640"}},
    {"metrics": {"port": 9763}},
    {"triggers": [{"name": "full", "when": "pcie_read_bandwidth > 6GB/s for 5ms"}]},
    # The upload reads its configuration only when it starts.
    {"upload": {"queue": "3GiB"}},
    {"otlp": {"interval": "15s"}},
]

# No schema of Kubernetes: the operator's own resources.
FOREIGN = {"PodMonitor", "ServiceMonitor"}


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


def same(name, found):
    """Fails if the objects are not those that the values ask for, or do not fit together."""
    kinds, account, address, host = WANTED[name]
    config, pod = one(found, "ConfigMap")["data"]["agent.toml"], one(found, "DaemonSet")["spec"]["template"]
    agent, *others = pod["spec"]["containers"]
    probe = agent.get("livenessProbe", {}).get("httpGet")
    # Each container reads the configuration, and so needs what it names.
    address_of = [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    hosts = [it for it in pod["spec"]["volumes"] if it["name"] not in ("config", "sys", "cgroups")]
    canary = tomllib.loads(config)["record"].get("canary", False)
    cgroups = [it["readOnly"] for it in agent["volumeMounts"] if it["name"] == "cgroups"]
    checks = [
        ("kinds", sorted(it["kind"] for it in found), kinds.split()),
        ("account", pod["spec"]["serviceAccountName"], account),
        ("address", tomllib.loads(config)["metrics"]["listen"], address),
        ("liveness", probe and probe.get("host", "of the pod"), host),
        ("POD_IP", [it["env"] for it in (agent, *others)], [address_of] * (1 + len(others))),
        ("types", {it["hostPath"]["type"] for it in hosts}, {"DirectoryOrCreate"}),
        ("cgroups are read-only", cgroups, [not canary]),
    ]
    for it in found:
        selector = it.get("spec", {}).get("selector", {})
        selector = selector.get("matchLabels", selector)
        checks.append((f"selector of {it['kind']}", selector.items() <= pod["metadata"]["labels"].items(), True))
    for what, got, wanted in checks:
        if got != wanted:
            sys.exit(f"{name}: {what}: {got}, and not {wanted}")


def changed(values, change):
    """The values with a change; a section keeps its other values."""
    merged = dict(values)
    for section, new in change.items():
        merged[section] = {**values.get(section, {}), **new} if isinstance(new, dict) else new
    return merged


def restarts(chart):
    """Fails if pods are replaced for what the agent applies, or stay where another one is needed."""

    def rendered(values):
        chart.validate_schema(values)
        found = objects(chart, values)
        return one(found, "ConfigMap")["data"], one(found, "DaemonSet")["spec"]["template"]

    config, pod = rendered(FULL)
    for changes, stays in [(APPLIED, True), (REPLACING, False)]:
        for change in changes:
            new_config, new_pod = rendered(changed(FULL, change))
            if new_config == config:
                sys.exit(f"{change} is not in the configuration")
            if (new_pod == pod) != stays:
                sys.exit(f"{change}: the pods {'are replaced' if stays else 'stay'}")


def same_keys(path):
    """Fails if the schema has a value that values.yaml, which documents all of them, does not have."""

    def compare(schema, values, above):
        for name, below in schema.get("properties", {}).items():
            # Helm gives `global` to every chart.
            if name not in values and above + name != "global":
                sys.exit(f"values.yaml has no {above}{name}")
            if isinstance(values.get(name), dict):
                compare(below, values[name], f"{above}{name}.")

    folder = pathlib.Path(path)
    schema = json.loads((folder / "values.schema.json").read_text())
    compare(schema, yaml.safe_load((folder / "values.yaml").read_text()), "")


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
    restarts(chart)
    same_keys(path)
    answer = {}
    for name, values in VALUES.items():
        chart.validate_schema(values)
        found = objects(chart, values)
        try:
            validate(found)
        except kubernetes_validate.ValidationError as error:
            sys.exit(f"{name}: {error}")
        same(name, found)
        answer[name] = {
            "config": one(found, "ConfigMap")["data"]["agent.toml"],
            "pod": one(found, "DaemonSet")["spec"]["template"],
        }
    print(json.dumps(answer))


main(sys.argv[1])
