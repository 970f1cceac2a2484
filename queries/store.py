"""Roll-ups in a directory or in a bucket: pyarrow's file systems, and obstore to read objects.

A root is `/path` or `s3://bucket/prefix`. Credentials, region and address of a store are those of the
environment, as of AWS's own tools: AWS_ACCESS_KEY_ID, AWS_REGION, AWS_ENDPOINT_URL, or the role of the instance.

A root that `compact.py` wrote has `_manifests/cluster=.../date=.../hour=10.json`, which names the files of an
hour: {"version": 1, "files": {NAME: BYTES}}. Files that it does not name are of a run that did not end.
"""

import functools
import json
import os
from concurrent.futures import ThreadPoolExecutor

import layout
from pyarrow import fs

# Requests under way at once: what a store takes long for is to begin an answer.
REQUESTS = 32
MANIFESTS = "_manifests"
VERSION = 1
FILES = layout.FILES


def each(act, these):
    """Calls a function with each of these, many at once; the results in their order."""
    with ThreadPoolExecutor(REQUESTS) as pool:
        return list(pool.map(act, these))


# Seconds for a request. pyarrow itself gives up after 3, and a store may be busy for longer.
PATIENCE = 60


@functools.cache
def s3(bucket):
    """The store of a bucket."""
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    scheme, _, address = os.environ.get("AWS_ENDPOINT_URL", "").partition("://")
    options = {"scheme": scheme, "endpoint_override": address} if address else {}
    if not region and not address:
        region = fs.resolve_s3_region(bucket)
    retry = fs.AwsStandardS3RetryStrategy(max_attempts=10)
    return fs.S3FileSystem(region=region, request_timeout=PATIENCE, retry_strategy=retry, **options)


@functools.cache
def objects(bucket):
    """Reads objects of a bucket with one request each. pyarrow asks for the size of an object first."""
    try:
        from obstore.store import S3Store
    except ImportError as error:
        raise SystemExit(f"store: to read files of s3://{bucket} needs obstore: pip install obstore") from error
    address = os.environ.get("AWS_ENDPOINT_URL") or None
    options = {"timeout": f"{PATIENCE}s", "allow_http": (address or "").startswith("http://")}
    return S3Store(bucket, endpoint=address, region=s3(bucket).region, client_options=options)


class Object:
    """An object `bucket/key` to read from: each read is one request, and to open it is none."""

    def __init__(self, path, size):
        bucket, _, self.key = path.partition("/")
        self.store, self.size, self.at = objects(bucket), size, 0

    def seek(self, offset):
        self.at = offset

    def tell(self):
        return self.at

    def read(self, length):
        length = min(length, self.size - self.at)
        content = self.store.get_range(self.key, start=self.at, length=length).to_bytes() if length > 0 else b""
        self.at += len(content)
        return content

    def close(self):
        pass


class Root:
    def __init__(self, root):
        self.url = str(root).rstrip("/")
        scheme, mark, rest = self.url.partition("://")
        if mark and scheme != "file":
            # Only the bucket is a URI: names in it have %XX, which is not decoded.
            bucket = rest.split("/")[0]
            is_s3 = scheme in ("s3", "s3a")
            self.files = s3(bucket) if is_s3 else fs.FileSystem.from_uri(f"{scheme}://{bucket}")[0]
            self.path = rest
        else:
            self.files = fs.LocalFileSystem()
            self.path = self.url = os.path.abspath(rest if mark else self.url)
        self.is_local = isinstance(self.files, fs.LocalFileSystem)
        self.is_s3 = isinstance(self.files, fs.S3FileSystem)

    def _find(self, at, recursive=False):
        base = f"{self.path}/{at}".rstrip("/")
        at = fs.FileSelector(base, allow_not_found=True, recursive=recursive)
        return [(it.path[len(base) + 1 :], it) for it in self.files.get_file_info(at)]

    def list(self, at, recursive=False):
        """Names below a directory and their sizes."""
        found = self._find(at, recursive)
        return {name: it.size for name, it in found if it.type == fs.FileType.File}

    def directories(self, at):
        return sorted(name for name, it in self._find(at) if it.type == fs.FileType.Directory)

    def small(self, hour):
        """The files of the hosts of an hour and their sizes, and what lies where no file of a host is."""
        found = sorted(self.list(hour, recursive=True).items())
        files = {name: size for name, size in found if layout.is_small(f"{hour}/{name}")}
        others = [name for name, _ in found if name not in files and not layout.is_unfinished(name)]
        return files, others

    def parquet(self, at):
        """The large files of an hour and their sizes."""
        return {
            name: size
            for name, size in sorted(self.list(at).items())
            if name.endswith(".parquet") and not name.startswith((".", "_"))
        }

    def read(self, at):
        if self.is_s3:
            bucket, _, key = f"{self.path}/{at}".partition("/")
            return objects(bucket).get(key).bytes().to_bytes()
        with self.files.open_input_stream(f"{self.path}/{at}") as file:
            return file.read()

    def write(self, at, content):
        """Writes a file that readers see whole or not at all."""
        path = f"{self.path}/{at}"
        if not self.is_local:
            with self.files.open_output_stream(path) as file:
                file.write(content)
            return
        os.makedirs(os.path.dirname(path), exist_ok=True)
        directory, name = os.path.split(path)
        hidden = f"{directory}/.{name}.{os.getpid()}.tmp"
        try:
            with open(hidden, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(hidden, path)
        finally:
            if os.path.exists(hidden):
                os.unlink(hidden)

    def remove(self, at):
        self.files.delete_file(f"{self.path}/{at}")

    def manifest(self, hour):
        """The files of an hour that is compacted, and their sizes; none if it is not."""
        name = f"{MANIFESTS}/{hour}.json"
        try:
            manifest = json.loads(self.read(name))
        except FileNotFoundError:
            return {}
        if manifest.get("version") != VERSION:
            raise SystemExit(f"{self.url}/{name}: version {VERSION} is read: use newer queries")
        return manifest["files"]

    def publish(self, hour, files):
        content = json.dumps({"version": VERSION, "files": files}, indent=1)
        self.write(f"{MANIFESTS}/{hour}.json", content.encode())

    def named(self, pattern=FILES):
        """The files that the manifests name, of hours that match; None where there are no manifests."""
        hours = sorted(it.removesuffix(".json") for it in self.list(MANIFESTS, recursive=True))
        if not hours:
            return None
        # A large file has all hosts.
        of = "/".join(pattern.split("/")[:3])
        hours = [hour for hour in hours if layout.matches(hour, of)]
        found = [
            f"{hour}/{file}" for hour, files in zip(hours, each(self.manifest, hours)) for file in files
        ]
        if not found:
            raise SystemExit(f"{self.url}: no hour that is compacted matches {pattern}")
        return found

    def matching(self, pattern=FILES):
        """The paths of all that the manifests name or, without them, of all that is there."""
        named = self.named(pattern)
        named = self._small(pattern) if named is None else named
        return [f"{self.url}/{it}" for it in named]

    def is_compacted(self):
        """Whether manifests name its files."""
        return bool(self.list(MANIFESTS, recursive=True))

    def _small(self, pattern):
        """The files of hosts that match. One listing of what they have in common: a directory takes a request."""
        above = layout.above(pattern)
        found = [f"{above}/{name}".lstrip("/") for name in self.list(above, recursive=True)]
        return sorted(it for it in found if layout.matches(it, pattern) and layout.is_small(it))
