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
import urllib.request

BUCKET = "fleet"
# The store that is not of Python; nothing of it is built or run at its installation.
S3RVER = "s3rver@3.7.1"
LINE = re.compile(rb"(GET|HEAD|PUT|POST|DELETE) (\S+) HTTP/1\.1\r\n")


class Proxy(socketserver.ThreadingTCPServer):
    """Forwards connections; `requests` has the methods and paths of all requests."""

    daemon_threads, request_queue_size = True, 128

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


@contextlib.contextmanager
def store(kind, directory):
    """Starts a store with a bucket; sets what is needed to reach it in the environment, and gives its proxy."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    if kind == "moto":
        command = [os.environ.get("MOTO", sys.executable), "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    else:
        subprocess.run(
            ["npm", "install", "--silent", "--ignore-scripts", "--prefix", directory, S3RVER], check=True
        )
        command = ["node", f"{directory}/node_modules/.bin/s3rver", "--silent", "-a", "127.0.0.1"]
        command += ["-p", str(port), "-d", f"{directory}/objects", "--configure-bucket", BUCKET]
        # It keeps the check sum that a newer client appends to a body as if it were content.
        os.environ["AWS_REQUEST_CHECKSUM_CALCULATION"] = "when_required"
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        del os.environ[name]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.1)
        if kind == "moto":
            address = f"http://127.0.0.1:{port}/{BUCKET}"
            urllib.request.urlopen(urllib.request.Request(address, method="PUT")).close()
        with Proxy(port) as proxy:
            os.environ |= {
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.server_address[1]}",
                "AWS_ACCESS_KEY_ID": "S3RVER",
                "AWS_SECRET_ACCESS_KEY": "S3RVER",
                "AWS_REGION": "us-east-1",
            }
            yield proxy
    finally:
        server.kill()
        server.wait()
