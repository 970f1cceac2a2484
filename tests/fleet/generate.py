"""Writes roll-ups of many hosts for an hour, from roll-ups of recordings of the lab.

    generate.py SEED.parquet... DIRECTORY [--hosts 100] [--window 10] [--jobs 4]

Hosts take the recordings in turn. Every count is one of the recording: a window of 10 s is ten of its
windows of 1 s, drawn with repetition, and added up as `uncore-trace rollup` adds the windows of `fabric`. What is made up are
times, hosts and the names of tenants: each cgroup of the lab becomes a pod of one of 30 namespaces,
`team-00` to `team-29`. Numbers are drawn from the host's name: two runs write the same.

    cluster=north/date=2026-11-17/hour=10   --hosts hosts, what is asked about
    cluster=north/date=2026-11-17/hour=09   4 hosts, the hour before
    cluster=north/date=2026-11-16/hour=10   4 hosts, the day before
    cluster=south/date=2026-11-17/hour=10   4 hosts of another cluster

In the hour that is asked about, `team-07` is deployed anew at half past: its pods have other names, and
its hosts draw from the fuller half of the windows instead of the emptier. The rest of a `.partial`
directory, as a host has it while an hour is not over, lies beside the files: no reader may open it.
"""

import argparse
import collections
import concurrent.futures
import datetime
import hashlib
import pathlib
import random
import uuid

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

HOUR = 3600
# Rows of a row group (uncore-trace-recording/src/tables/encode.rs).
GROUP_ROWS = 2**16
NAMESPACES = 30
# The pods of this namespace are replaced at half past.
DEPLOYED = "team-07"
# By which columns the rows of a row group are sorted (uncore-trace-recording/src/schema/rollup.rs), without the time.
SORTED = ["event", "filter", "pmu", "owner", "cgroup", "comm", "number"]
# What is the same in all rows of an owner and a counter.
KEY = [
    "socket", "subsystem", "link", "direction", "peak", "peak_direction", "pmu", "event", "filter", "unit", "owner",
    "number", "comm", "cgroup", "container", "pod", "method",
]  # fmt: skip
COUNTER = ["pmu", "event", "filter", "socket"]
VERSIONS = [b"uncore_trace.rollup_version", b"uncore_trace.schema_version", b"uncore_trace.tool_version"]
DELTA = ["ts", "mono_ns"]
PLAIN = ["value", "low", "high", "total"]


class Seed:
    """The windows of a recording: one row of each matrix is an owner, one column a window."""

    def __init__(self, path):
        file = pq.ParquetFile(path)
        self.schema = file.schema_arrow.remove_metadata()
        metadata = file.metadata.metadata or {}
        self.metadata = {name: metadata[name] for name in VERSIONS if name in metadata}
        group = file.metadata.row_group(0)
        columns = map(group.column, range(group.num_columns))
        self.statistics = [it.path_in_schema for it in columns if it.is_stats_set]
        rows = file.read().to_pylist()
        length = rows[0]["window_ns"]
        # Of the first and the last window of a recording only a part is known.
        known = collections.defaultdict(int)
        for row in rows:
            known[row["mono_ns"]] = max(known[row["mono_ns"]], row["known_ns"])
        times = sorted(time for time, its in known.items() if its > 0.95 * length)
        rows = [row for row in rows if row["mono_ns"] in times]
        self.length, self.windows = length, len(times)
        keys = sorted(
            {tuple(row[name] for name in KEY) for row in rows},
            key=lambda key: [str(cell) for cell in key],
        )
        self.keys = [dict(zip(KEY, key)) for key in keys]
        at = {key: place for place, key in enumerate(keys)}
        shape = (len(keys), len(times))
        self.present = np.zeros(shape)
        self.of = {name: np.zeros(shape) for name in ("value", "low", "high")}
        self.running, self.sure, self.weight = (np.zeros(shape) for _ in range(3))
        self.counters = {}
        for row in rows:
            place = at[tuple(row[name] for name in KEY)], times.index(row["mono_ns"])
            if self.present[place]:
                raise SystemExit(f"{path}: two rows of one owner and counter: is it of one host?")
            self.present[place] = 1
            for name in self.of:
                self.of[name][place] = row[name] or 0
            self.running[place] = row["running"]
            if row["confidence"] is not None:
                self.sure[place] = row["confidence"] * (row["value"] or 0)
                self.weight[place] = row["value"] or 0
            counter = self.counters.setdefault(
                tuple(row[name] for name in COUNTER), np.zeros((2, len(times)))
            )
            counter[:, place[1]] = row["total"] or 0, row["known_ns"]
        # Which windows are the fuller ones.
        full = sum(counter[0] for counter in self.counters.values())
        order = np.argsort(full, kind="stable")
        half = (len(order) + 1) // 2
        self.empty, self.full = order[:half], order[-half:]


def outwards(low, high, value, total):
    """The ends of intervals as the tool rounds them: to 10 bits, and never inwards."""
    coarse = np.uint64(2**42 - 1)
    down = (np.maximum(low, 0).view(np.uint64) & ~coarse).view(np.float64)
    up = ((np.maximum(high, 0).view(np.uint64) + coarse) & ~coarse).view(np.float64)
    return np.minimum(down, value), np.maximum(np.minimum(up, total), value)


def tenant(key, host, deployed):
    """A cgroup of the lab as a pod of a namespace."""
    cgroup = key["cgroup"]
    if cgroup is None or not cgroup.startswith("/lab/"):
        return key
    name = cgroup.rsplit("/", 1)[1]
    digest = hashlib.sha256(f"{host} {cgroup}".encode()).digest()
    namespace = f"team-{digest[0] % NAMESPACES:02}"
    release = "v2" if deployed and namespace == DEPLOYED else "v1"
    seed = hashlib.sha256(digest + release.encode())
    uid = str(uuid.UUID(bytes=seed.digest()[:16]))
    container = f"{name}@{seed.hexdigest()}"
    slices = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod"
    return key | {
        "cgroup": f"{slices}{uid.replace('-', '_')}.slice/cri-containerd-{seed.hexdigest()}.scope",
        "container": container,
        "pod": f"{namespace}/{name}-{release}-{uid[:5]}@{uid}",
    }


def repeated(cells, lengths, kind):
    """A column of each cell as often as its length."""
    is_word = pa.types.is_dictionary(kind)
    words = pa.array(cells, kind.value_type if is_word else kind).dictionary_encode()
    places = np.repeat(words.indices.to_numpy(zero_copy_only=False), lengths)
    places = pa.array(places, pa.int32(), from_pandas=True)
    column = pa.DictionaryArray.from_arrays(places, words.dictionary)
    return column if is_word else column.cast(kind)


def host_hour(seed, cluster, host, begin, window, deploys):
    """The rows of a host in an hour."""
    draw = random.Random(f"{cluster} {host} {begin}")
    count = HOUR // window
    half = count // 2
    boot = str(uuid.UUID(bytes=hashlib.sha256(host.encode()).digest()[:16]))
    ends = np.arange(count) * window * 1_000_000 + draw.randrange(window * 1_000_000)
    times = int(begin.timestamp()) * 1_000_000 + ends
    mono = (ends + draw.randrange(10**6) * 1_000_000) * 1000
    parts = [(0, half, False), (half, count, True)] if deploys else [(0, count, False)]
    keys, rows = [], []
    for first, last, deployed in parts:
        named = [tenant(key, host, deployed) for key in seed.keys]
        moved = deploys and any((key["pod"] or "").startswith(DEPLOYED + "/") for key in named)
        choice = (seed.full if deployed else seed.empty) if moved else range(seed.windows)
        drawn = np.zeros((seed.windows, last - first))
        for place in range(last - first):
            for one in draw.choices(list(choice), k=window * 10**9 // seed.length):
                drawn[one, place] += 1
        counters = {name: matrix @ drawn for name, matrix in seed.counters.items()}
        present = seed.present @ drawn
        of = {name: matrix @ drawn for name, matrix in seed.of.items()}
        weight, sure = seed.weight @ drawn, seed.sure @ drawn
        running = (seed.running @ drawn) / np.maximum(present, 1)
        confidence = np.where(weight > 0, sure / np.where(weight > 0, weight, 1), np.nan)
        for place, key in enumerate(named):
            its = np.flatnonzero(present[place])
            total, known = counters[tuple(key[name] for name in COUNTER)][:, its]
            value, low, high = (of[name][place, its] for name in ("value", "low", "high"))
            low, high = outwards(low, high, value, total)
            keys.append(key)
            rows.append(
                {
                    "ts": times[first + its],
                    "mono_ns": mono[first + its],
                    "known_ns": known.astype(np.int64),
                    "value": np.where(known > 0, value, np.nan),
                    "low": np.where(known > 0, low, np.nan),
                    "high": np.where(known > 0, high, np.nan),
                    "total": np.where(known > 0, total, np.nan),
                    "running": running[place, its],
                    "confidence": np.round(confidence[place, its], 2),
                }
            )
    order = sorted(
        range(len(keys)),
        # The numbers of interrupts are sorted as numbers; nulls come first.
        key=lambda at: [
            (keys[at][name] is not None, keys[at][name] or (0 if name == "number" else ""))
            for name in SORTED
        ],
    )
    # Owners whose sorted columns are the same are told apart by columns that are not sorted by.
    lengths = [len(rows[at]["ts"]) for at in order]
    size = sum(lengths)
    every = {name: np.concatenate([rows[at][name] for at in order]) for name in rows[0]}
    columns = []
    for field in seed.schema:
        name = field.name
        if name in every:
            column = pa.array(every[name], from_pandas=True).cast(field.type)
        elif name in KEY:
            column = repeated([keys[at][name] for at in order], lengths, field.type)
        else:
            same = {
                "window_ns": window * 10**9,
                "host": host,
                "boot_id": boot,
                "cluster": cluster,
            }
            column = repeated([same[name]], [size], field.type)
        columns.append(column)
    # The tool sorts row groups, which follow each other in time.
    rank = np.repeat(np.arange(len(order)), lengths)
    by_time = np.lexsort((rank, every["mono_ns"]))
    group = np.empty(size, np.int64)
    group[by_time] = np.arange(size) // GROUP_ROWS
    order = np.lexsort((every["mono_ns"], rank, group))
    return pa.table(columns, schema=seed.schema).take(pa.array(order)), boot


def write(seed, root, cluster, host, begin, window, deploys=False):
    """A file of the layout; gives its rows."""
    table, boot = host_hour(seed, cluster, host, begin, window, deploys)
    metadata = seed.metadata | {
        "uncore_trace.host": host,
        "uncore_trace.boot_id": boot,
        "uncore_trace.cluster": cluster,
    }
    table = table.replace_schema_metadata(metadata)
    directory = root / f"cluster={cluster}/date={begin:%Y-%m-%d}/hour={begin:%H}/host={host}"
    directory.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        table,
        directory / f"{boot[:8]}_0000362410.parquet",
        compression="zstd",
        compression_level=6,
        row_group_size=GROUP_ROWS,
        use_dictionary=[name for name in table.column_names if name not in DELTA + PLAIN],
        column_encoding={name: "DELTA_BINARY_PACKED" for name in DELTA},
        write_statistics=seed.statistics,
    )
    return table.num_rows


def plan(hosts):
    """Cluster, host, hour, and whether that is the hour that is asked about."""
    hour = datetime.datetime(2026, 11, 17, 10, tzinfo=datetime.timezone.utc)
    yield from (("north", f"node-{at:04}", hour, True) for at in range(hosts))
    for at in range(4):
        before = hour - datetime.timedelta(hours=1)
        yield "north", f"node-{at:04}", before, False
        yield "north", f"node-{at:04}", hour - datetime.timedelta(days=1), False
        yield "south", f"edge-{at:04}", hour, False


def job(args):
    seeds, root, window, files = args
    seeds = [Seed(seed) for seed in seeds]
    return sum(
        write(seeds[int(file[1].split("-")[1]) % len(seeds)], root, *file[:3], window, file[3])
        for file in files
    )


def generate(seeds, root, hosts=100, window=10, jobs=4):
    """Writes all files; gives the number of rows."""
    files = list(plan(hosts))
    work = [(seeds, root, window, files[at::jobs]) for at in range(jobs)]
    with concurrent.futures.ProcessPoolExecutor(jobs) as pool:
        rows = sum(pool.map(job, work))
    # What a host leaves beside its files while an hour is not over.
    cluster, host, begin, _ = files[0]
    name = f"cluster={cluster}/date={begin:%Y-%m-%d}/hour={begin:%H}/host={host}/00000000_001.parquet"
    partial = root / f"{name}.partial"
    partial.mkdir(parents=True, exist_ok=True)
    (partial / "000000-000000.parquet").write_bytes(b"not complete")
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seeds", type=pathlib.Path, nargs="+")
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--hosts", type=int, default=100)
    parser.add_argument("--window", type=int, default=10, help="seconds")
    parser.add_argument("--jobs", type=int, default=4)
    args = parser.parse_args()
    rows = generate(args.seeds, args.root, args.hosts, args.window, args.jobs)
    print(f"{rows} rows")


if __name__ == "__main__":
    main()
