"""A kubelet's service PodResources on a Unix socket: gRPC's own implementation answers.

    kubelet.py SOCKET HOW

HOW is `pods`: two pods have devices, until a line comes on standard input: then the second one is gone. Each answer is
said in a line on standard output.
`huge`: 40 MiB of ids. `error`: the call is refused. `late`: the answer comes after 20 s. `nonsense`: bytes that are no
message.
"""

import sys
import threading
import time
from concurrent import futures

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# pkg/apis/podresources/v1/api.proto: messages with their fields, the number and the type of each.
MESSAGES = {
    "ListPodResourcesResponse": [("pod_resources", 1, "*PodResources")],
    "PodResources": [("name", 1, "s"), ("namespace", 2, "s"), ("containers", 3, "*ContainerResources")],
    "ContainerResources": [
        ("name", 1, "s"), ("devices", 2, "*ContainerDevices"), ("cpu_ids", 3, "*i"),
        ("dynamic_resources", 5, "*DynamicResource"),
    ],
    "ContainerDevices": [("resource_name", 1, "s"), ("device_ids", 2, "*s"), ("topology", 3, "TopologyInfo")],
    "TopologyInfo": [("nodes", 1, "*NUMANode")],
    "NUMANode": [("ID", 1, "i")],
    "DynamicResource": [("claim_name", 2, "s"), ("claim_namespace", 3, "s"), ("claim_resources", 4, "*ClaimResource")],
    "ClaimResource": [
        ("cdi_devices", 1, "*CDIDevice"), ("driver_name", 2, "s"), ("pool_name", 3, "s"), ("device_name", 4, "s"),
    ],
    "CDIDevice": [("name", 1, "s")],
}  # fmt: skip


def messages():
    """The class of each message."""
    file = descriptor_pb2.FileDescriptorProto(name="api.proto", package="v1", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            added = message.field.add(name=field, number=number)
            added.label = added.LABEL_REPEATED if kind.startswith("*") else added.LABEL_OPTIONAL
            kind = kind.lstrip("*")
            added.type = {"s": added.TYPE_STRING, "i": added.TYPE_INT64}.get(kind, added.TYPE_MESSAGE)
            if added.type == added.TYPE_MESSAGE:
                added.type_name = f".v1.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"v1.{name}")) for name in MESSAGES}


M = messages()


def pod(name, **container):
    return {"name": name, "namespace": "shop", "containers": [{"name": "main", **container}]}


def answer(pods):
    return M["ListPodResourcesResponse"](pod_resources=pods).SerializeToString()


PLUGIN = pod(
    "web-0",
    cpu_ids=[1, 2],
    devices=[{
        "resource_name": "nvidia.com/gpu",
        "device_ids": ["GPU-2f8e3c5a", "0000:ff:1f.7"],
        "topology": {"nodes": [{"ID": 1}]},
    }],
)  # fmt: skip
DRA = pod(
    "train\x1b[2J-0",
    dynamic_resources=[{
        "claim_name": "one",
        "claim_namespace": "shop",
        "claim_resources": [{
            "cdi_devices": [{"name": "a.com/b=0"}, {"name": "a.com/b=1"}],
            "driver_name": "gpu.nvidia.com", "pool_name": "node", "device_name": "gpu-0",
        }],
    }],
)  # fmt: skip


def main(socket, how):
    pods = [PLUGIN, DRA]

    def listed(request, context):
        assert request == b"", request
        if how == "error":
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "no\x1b[2J")
        if how == "late":
            time.sleep(20)
        if how == "nonsense":
            return b"\xff" * 100
        if how == "huge":
            devices = [{"resource_name": "a.com/b", "device_ids": ["x" * (1 << 20)] * 40}]
            return answer([pod("huge", devices=devices)])
        answered = answer(pods)
        print("answered", flush=True)
        return answered

    handler = grpc.method_handlers_generic_handler(
        "v1.PodResourcesLister", {"List": grpc.unary_unary_rpc_method_handler(listed)}
    )
    server = grpc.server(
        futures.ThreadPoolExecutor(2), handlers=[handler], options=[("grpc.max_send_message_length", -1)]
    )
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    print("ready", flush=True)

    def change():
        for _ in sys.stdin:
            pods.remove(DRA)

    threading.Thread(target=change, daemon=True).start()
    server.wait_for_termination()


main(*sys.argv[1:])
