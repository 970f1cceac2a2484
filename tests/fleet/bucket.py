"""Compaction, registration and questions on a store, as on a directory.

    bucket.py moto|seaweedfs|directory ROOT DIRECTORY

Compacts hosts of ROOT's hour in steps, and asks all engines after each. Prints what it found as a JSON array of lines.
"""

import contextlib
import json
import logging
import os
import pathlib
import subprocess
import sys
import urllib.parse

import pyarrow as pa
import pyarrow.parquet as pq
import stores

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "queries"))
CLUSTER, DATE, HOUR = "north", "2026-11-17", 10
# The path has %XX, as the layout writes a cluster of this name.
ODD = "o%27hara"
SUM = "SELECT count(*) AS n, count(DISTINCT host) AS hosts, sum(value) AS s FROM rollup"
ENGINES = ["duckdb", "clickhouse", "polars"]
# Of these hosts the hour is compacted at first; one more is late.
HOSTS = 12


def main(kind, root, directory):
    directory.mkdir(parents=True)
    if kind == "directory":
        run(kind, root, directory, str(directory), [])
    else:
        with stores.store(kind, str(directory)) as proxy:
            run(kind, root, directory, f"s3://{stores.BUCKET}/prefix", proxy.requests, proxy.catalog)


def renamed(rows, cluster):
    """The rows in another cluster."""
    at = rows.column_names.index("cluster")
    rows = rows.set_column(at, "cluster", pa.array([cluster] * len(rows)))
    return rows.replace_schema_metadata(rows.schema.metadata | {b"uncore_trace.cluster": cluster.encode()})


def damaged(path):
    """Few rows whose last column cannot be read."""
    content = pa.BufferOutputStream()
    pq.write_table(pq.read_table(path).slice(0, 100), content, compression="zstd")
    content = bytearray(content.getvalue().to_pybytes())
    file = pq.ParquetFile(pa.BufferReader(bytes(content))).metadata
    at = file.row_group(0).column(file.num_columns - 1)
    at = at.dictionary_page_offset or at.data_page_offset
    content[at : at + 20] = bytes(20)
    return bytes(content)


def hostile(path):
    """Few rows of a host as it may write them, and why they are left out."""
    rows = pq.read_table(path).slice(0, 100)

    def with_column(name, values):
        return rows.set_column(rows.column_names.index(name), name, values)

    return {
        # Engines that tell no columns apart by case would take the second.
        "two of its columns have one name": rows.append_column("Host", pa.array(["node-0001"] * len(rows))),
        "its column number has the type string": with_column("number", rows["number"].cast(pa.string())),
        "it has windows without a time": with_column("ts", pa.nulls(len(rows), rows["ts"].type)),
        "it has no rows": rows.slice(0, 0),
    }


class Ran(Exception):
    pass


def run(kind, root, directory, url, requests, rest=None):
    import ask
    import compact
    import layout
    import store

    said = []
    small, large = f"{url}/small", f"{url}/large"
    files, target = store.Root(small), store.Root(large)
    hour = compact.place(CLUSTER, DATE, HOUR)
    every = sorted((root / hour).glob("host=*/*.parquet"))
    (*first, late) = every[: HOSTS + 1]

    def name_of(path):
        return f"{path.parent.name}/{path.name}"

    def put(path, cluster=CLUSTER):
        place = f"{compact.place(cluster, DATE, HOUR)}/{path.parent.name}"
        content = path.read_bytes()
        if cluster != CLUSTER:
            rows = renamed(pq.read_table(path), urllib.parse.unquote(cluster))
            content = pa.BufferOutputStream()
            pq.write_table(rows, content)
            content = content.getvalue().to_pybytes()
        files.write(f"{place}/{path.name}", content)

    left = {}

    def merge(cluster=CLUSTER, limit=sum(path.stat().st_size for path in first) // 3):
        begin = len(requests)
        counts = compact.compact("duckdb", small, large, cluster, DATE, HOUR, limit)
        read = [it for it in requests[begin:] if "/small/" in it[1] and ".parquet" in it[1]]
        if kind != "directory":
            # A listing has the sizes: a file is one request. What is no file of a host is not read.
            looked = [name for name in counts[2] if layout.is_small(f"{hour}/{name}")]
            expect("requests for small files", len(read), counts[0] + len(looked))
            expect("requests for small files", sorted(read), sorted(set(read)))
        left.update(counts[2])
        return counts[:2]

    def answers(at):
        return [[plain(ask, engine, at, SUM) for engine in ENGINES], len(store.Root(at).matching())]

    def settled(at, hosts):
        """All engines find the rows of this many hosts, once."""
        found, count = answers(at)
        for answer in found[1:]:
            expect(f"{at}: an engine's answer", near(answer), near(found[0]))
        expect(f"{at}: hosts", found[0][1], hosts)
        return found[0], count

    for path in first:
        put(path)
        put(path, ODD)
    begin = len(requests)
    plain(ask, "duckdb", small, SUM)
    # DuckDB asks for size and time of a file four times.
    asked = [it for it in requests[begin:] if it[0] == "HEAD" and it[1].endswith(".parquet")]
    expect("sizes that the listing has", asked, [])
    # A listing for each host would take longer than its file.
    listings = [it for it in requests[begin:] if "list-type" in it[1]]
    expect("listings of DuckDB are few", len(listings) < HOSTS, True)
    whole, _ = settled(f"{small}", HOSTS)
    # Half of it is of the other cluster.
    expected = [whole[0] // 2, HOSTS, whole[2] / 2]

    # Until the manifest is written readers see nothing, and if the run fails nothing stays.
    with patched(store.Root, "publish", stop), contextlib.suppress(Ran):
        merge()
    expect("files of a run that failed", target.parquet(hour), {})
    with patched(compact, "same", lambda one, other: False):
        refused("not the same", merge)
    expect("files with other rows", target.parquet(hour), {})

    expect("the first run", merge(), (HOSTS, 4))
    rows, before = settled(large, HOSTS)
    expect("rows", near(rows), near(expected))
    expect("a second run", merge(), (0, 4))

    # The run of a late file dies before its manifest: readers see the hour as it was.
    put(late)
    held = target.parquet(hour)
    with patched(store.Root, "publish", stop), patched(store.Root, "remove", lambda self, at: None):
        with contextlib.suppress(Ran):
            merge()
    expect("files of a run that died", len(target.parquet(hour)), len(held) + 1)
    expect("rows after it", settled(large, HOSTS), (rows, before))
    # Its file has been written and compared, so no run reads that host again.
    begin = len(requests)
    expect("the next run", compact.compact("duckdb", small, large, CLUSTER, DATE, HOUR), (1, 5, {}))
    expect("what it reads", [it for it in requests[begin:] if late.parent.name in it[1]], [])
    settled(large, HOSTS + 1)
    expect("its large files", held.items() <= target.parquet(hour).items(), True)

    # What nothing names is removed once there is something to add.
    target.write(f"{hour}/compact_0.parquet", late.read_bytes())
    put(every[HOSTS + 1])
    settled(large, HOSTS + 1)
    # Another run writes the hour at the same time.
    manifest = target.manifest(hour)

    read = iter([manifest])

    def meanwhile(self, at):
        return next(read, dict(manifest, other=1))

    with patched(store.Root, "manifest", meanwhile):
        refused("another run", merge)
    expect("the hour after it", target.parquet(hour).keys(), manifest.keys())
    expect("a host more", merge(), (1, 6))
    rows, count = settled(large, HOSTS + 2)

    # A store that keeps other bytes than it was given.
    put(every[HOSTS + 2])
    write = store.Root.write
    with patched(store.Root, "write", lambda self, at, content: write(self, at, content + b"x")):
        refused("the store has", merge)
    expect("rows", settled(large, HOSTS + 2), (rows, count))
    content = files.read(f"{hour}/{name_of(late)}")
    files.write(f"{hour}/{name_of(late)}", content + b"x")
    refused("has changed", merge)
    files.write(f"{hour}/{name_of(late)}", content)

    # What a host may not say: that is left out, each time, and the others are added.
    (other_hour,) = (root / compact.place(CLUSTER, DATE, HOUR - 1)).glob("host=node-0001/*.parquet")
    spoiled = {
        "host=zzz/1_1.parquet": b"PAR1 and no more",
        "host=node-9999/1_1.parquet": late.read_bytes(),
        f"{late.parent.name}/1_1.parquet": files.read(f"{compact.place(ODD, DATE, HOUR)}/{name_of(first[0])}"),
        "host=node-0001/1_1.parquet": other_hour.read_bytes(),
        # Not where a file of a host is, also where a policy lets a host write: it names the last `host=`.
        "node-9999_1_1.parquet": late.read_bytes(),
        f"{late.parent.name}/1_2.parquet": damaged(late),
        f"{late.parent.name}/host=node-9999/1_1.parquet": late.read_bytes(),
        f"{late.parent.name}/hour=10/host=node-9999/1_1.parquet": late.read_bytes(),
        "host=%6Eode-0012/1_1.parquet": late.read_bytes(),
    }
    reasons = {}
    for at, (why, rows) in enumerate(hostile(late).items()):
        content = pa.BufferOutputStream()
        pq.write_table(rows, content)
        name = f"{late.parent.name}/2_{at}.parquet"
        spoiled[name], reasons[name] = content.getvalue().to_pybytes(), why
    for name, content in spoiled.items():
        files.write(f"{hour}/{name}", content)
    files.write(f"cluster={CLUSTER}/date={DATE}/hour=abc/{name_of(late)}", late.read_bytes())
    expect("hours of the day", compact.hours(small, CLUSTER, DATE, "all"), [HOUR])
    files.remove(f"cluster={CLUSTER}/date={DATE}/hour=abc/{name_of(late)}")
    expect("the last host", merge(), (1, 7))
    expect("what is left out", left.keys(), spoiled.keys())
    expect("why", {name: left[name] for name in reasons}, reasons)
    expect("a run for what is left out", merge(), (0, 7))
    # In the small files themselves cluster and host are those of the path. Engines take any spelling of it, which no
    # policy lets a host write.
    others = ["host=zzz/1_1.parquet", "host=%6Eode-0012/1_1.parquet", f"{late.parent.name}/1_2.parquet"]
    for name in [*others, *reasons]:
        files.remove(f"{hour}/{name}")
        del spoiled[name]
    query = "SELECT count(*) FROM rollup WHERE host = '{}' AND cluster = 'north'"
    own = pq.read_metadata(late).num_rows
    for engine in ENGINES:
        rows = [plain(ask, engine, small, query.format(host))[0] for host in ("node-9999", late.parent.name[5:])]
        more = pq.read_metadata(first[0]).num_rows
        expect(f"{engine}: rows of a host that speaks of others", rows, [own, own + more])
    for name in spoiled:
        files.remove(f"{hour}/{name}")

    # Files of few rows are put together before an engine opens them.
    before, _ = settled(large, HOSTS + 3)
    with patched(compact, "FEW", 2**20), patched(compact, "TOGETHER", 5):
        expect("another cluster", merge(ODD)[0], HOSTS)
    after, _ = settled(large, HOSTS + 3)
    expect("its rows", near([after[0] - before[0], HOSTS, after[2] - before[2]]), near(expected))
    said.append(f"{HOSTS + 3} hosts in 7 large files; late files, runs that died and runs at once: no row lost or doubled")
    if kind != "directory":
        said.append(f"{len(requests)} requests; each small file was read by one run, with one of them")
        said.append(questions(directory, small))
    catalogs = {"SQLite": (f"sqlite:///{directory}/catalog.db", f"{store.Root(url).url}/iceberg")}
    if rest:
        catalogs["REST"] = rest
    said += registered(catalogs, large, lambda: put(late, "late"), lambda: merge("late"))
    if os.environ.get("HTTPFS"):
        said.append(httpfs(directory, large, settled(large, HOSTS + 3)[0]))
    json.dump(said, sys.stdout)


def plain(ask, engine, at, query):
    _, rows = ask.ENGINES[engine](at).ask(query)
    return [ask.plain(cell) for cell in rows[0]]


def near(cells):
    return [float(f"{cell:.9g}") for cell in cells]


def expect(what, found, wanted):
    if found != wanted:
        raise SystemExit(f"{what}: {found}, and not {wanted}")


def refused(reason, act):
    try:
        act()
    except SystemExit as error:
        if reason not in str(error):
            raise
    else:
        raise SystemExit(f"nothing was refused: {reason}")


def stop(*args):
    raise Ran


@contextlib.contextmanager
def patched(of, name, to):
    kept = getattr(of, name)
    setattr(of, name, to)
    try:
        yield
    finally:
        setattr(of, name, kept)


def questions(directory, small):
    """The questions of `queries` have the same answers in a bucket as in a directory."""
    import ask
    import compact
    import store
    from pruned import QUESTIONS

    same, files = store.Root(directory / "same"), store.Root(small)
    for file in files.matching():
        name = file[len(files.url) + 1 :]
        same.write(name, files.read(name))
    # Of few hosts none has the one tenant.
    tenant = {"tenant": "team-%"}
    for name, values in QUESTIONS.items():
        values = values | tenant if "tenant" in values else values
        for engine in ENGINES:
            query = ask.question(engine, name, values)
            here, there = (
                [[ask.plain(cell) for cell in row] for row in ask.ENGINES[engine](at).ask(query)[1]]
                for at in (same.url, small)
            )
            expect(f"{engine}: {name}: the same", compact.same(here, there), True)
            expect(f"{engine}: {name}: an answer", bool(here), True)
    return f"{len(QUESTIONS)} questions in {len(ENGINES)} engines: answers as of the directory"


def registered(catalogs, large, one_more, merge):
    """What the manifests name is in an Iceberg table of each catalog, whose metadata are in the store."""
    import iceberg
    import store

    logging.disable(logging.WARNING)
    opened = {name: iceberg.catalog(*catalog) for name, catalog in catalogs.items()}
    files = store.Root(large).matching()
    counts = {}
    for name, catalog in opened.items():
        table, added = iceberg.register(catalog, files)
        expect(f"{name}: files in the table", added, len(files))
        _, added = iceberg.register(catalog, files)
        expect(f"{name}: files of a second time", added, 0)
        counts[name] = table.scan(selected_fields=("host",)).to_arrow().num_rows
    one_more()
    merge()
    for name, catalog in opened.items():
        table, added = iceberg.register(catalog, store.Root(large).matching())
        expect(f"{name}: late files in the table", added, 1)
        more = table.scan(selected_fields=("host",)).to_arrow().num_rows
        before = table.scan(snapshot_id=table.history()[0].snapshot_id, selected_fields=("host",))
        expect(f"{name}: the snapshot before it", before.to_arrow().num_rows, counts[name])
        expect(f"{name}: rows of the late file", more > counts[name], True)
        late = table.scan(row_filter="cluster = 'late'", selected_fields=("host",)).to_arrow()
        expect(f"{name}: rows of its cluster", late.num_rows, more - counts[name])
    expect("rows in all catalogs", len(set(counts.values())), 1)
    return [f"Iceberg, {name}: {len(files) + 1} files in 2 snapshots" for name in opened]


def httpfs(directory, large, expected):
    """DuckDB's own reader of buckets, of a version that has it in a package."""
    (packages,) = pathlib.Path(os.environ["HTTPFS"]).parents[1].glob("lib/python*/site-packages")
    environment = os.environ | {"PYTHONPATH": str(packages), "HOME": str(directory)}
    install = "import duckdb, duckdb_extension_httpfs as it, pathlib; "
    install += "duckdb.execute(f\"INSTALL '{next(pathlib.Path(it.__path__[0]).rglob('*.duckdb_extension'))}'\")"
    run = [sys.executable, "-c", install]
    subprocess.run(run, env=environment, check=True)
    ask = HERE.parents[1] / "queries/ask.py"
    run = [sys.executable, "-X", "importtime", str(ask), "duckdb", SUM, large]
    answer = subprocess.run(run, env=environment, check=True, capture_output=True, text=True)
    expect("fsspec beside httpfs", "fsspec.implementations.arrow" in answer.stderr, False)
    found = [float(cell) for cell in answer.stdout.splitlines()[1].split("\t")]
    expect("httpfs", near(found), near(expected))
    return "DuckDB's httpfs: the same answer"


if __name__ == "__main__":
    main(sys.argv[1], *map(pathlib.Path, sys.argv[2:]))
