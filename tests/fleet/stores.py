"""Object stores on the loopback interface, behind a proxy that notes their requests."""

import contextlib
import os
import re
import socket
import socketserver
import subprocess
import sys
import threading
import time

from pyarrow import fs

BUCKET, WAREHOUSE = "fleet", "lake"
LINE = re.compile(rb"(GET|HEAD|PUT|POST|DELETE) (\S+) HTTP/1\.1\r\n")


class Proxy(socketserver.ThreadingTCPServer):
    """Forwards connections; `requests` has the methods and paths of all requests."""

    daemon_threads, request_queue_size = True, 128
    # URI and warehouse of the REST catalog of the store, if it has one.
    catalog = None

    def __init__(self, port):
        self.port, self.requests = port, []
        super().__init__(("127.0.0.1", 0), Connection)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Connection(socketserver.BaseRequestHandler):
    def handle(self):
        store = socket.create_connection(("127.0.0.1", self.server.port))
        threading.Thread(target=pump, args=(store, self.request), daemon=True).start()
        pump(self.request, store, self.note)

    def note(self, block):
        found = LINE.findall(block)
        self.server.requests += [(method.decode(), path.decode()) for method, path in found]


def pump(one, other, note=lambda block: None):
    with contextlib.suppress(OSError):
        while block := one.recv(2**16):
            note(block)
            other.sendall(block)
    with contextlib.suppress(OSError):
        other.shutdown(socket.SHUT_WR)


def free(count):
    """Ports that nothing listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def seaweedfs(directory, port, catalog):
    """SeaweedFS: a store of several services, and a REST catalog of Iceberg."""
    services = ["master", "volume", "filer", "admin"]
    ports = dict(zip(services, free(len(services)))) | {"s3": port}
    command = [os.environ["WEED"], "mini", f"-dir={directory}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    command += [f"-{service}.port={at}" for service, at in ports.items()]
    command += [f"-{service}.port.grpc={at}" for service, at in zip(ports, free(len(ports)))]
    command += [f"-{service}.localSocket={directory}/{service}.sock" for service in ("filer", "s3")]
    command += [f"-s3.port.iceberg={catalog}", "-s3.port.lance=0", f"-tableBucket={WAREHOUSE}"]
    return command + ["-webdav=false", "-admin.ui=false", "-master.telemetry=false"]


def listening(port):
    for _ in range(600):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.1)
    raise SystemExit(f"nothing listens on port {port}")


@contextlib.contextmanager
def store(kind, directory):
    """Starts a store with a bucket; sets what is needed to reach it in the environment, and gives its proxy."""
    port, catalog = free(2)
    if kind == "moto":
        command = [os.environ.get("MOTO", sys.executable), "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    else:
        command = seaweedfs(directory, port, catalog)
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        del os.environ[name]
    os.environ |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        listening(port)
        address = {"scheme": "http", "endpoint_override": f"127.0.0.1:{port}"}
        fs.S3FileSystem(allow_bucket_creation=True, **address).create_dir(BUCKET)
        with Proxy(port) as proxy:
            os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{proxy.server_address[1]}"
            if kind == "seaweedfs":
                listening(catalog)
                proxy.catalog = f"http://127.0.0.1:{catalog}", f"s3://{WAREHOUSE}"
                os.environ["PYICEBERG_CATALOG__UNCORE_TRACE__CREDENTIAL"] = "test:test"
            yield proxy
    finally:
        # SeaweedFS removes its sockets in /tmp.
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
