"""Commands of `cargo xtask fleet`, which queries the roll-ups of `generate.py`. All write JSON to stdout.

    fleet.py ask ENGINE ROOT COMPACT-DUCKDB COMPACT-SPARK VERSIONS
    fleet.py compact ENGINE ROOT TO
    fleet.py versions ROOT TO
    fleet.py iceberg ROOT COMPACT WAREHOUSE
    fleet.py size ROOT
"""

import json
import os
import pathlib
import sys
import time

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "queries"))
import ask  # noqa: E402
import compact  # noqa: E402
import layout  # noqa: E402
import split  # noqa: E402
from bucket import renamed  # noqa: E402
from pruned import (  # noqa: E402
    CLUSTER, DATE, HOUR, QUESTIONS, bloom, hour_files, open_engine, part, pruned,
)  # fmt: skip

# The compacted roots have one hour of one cluster: questions about more days would differ.
COMPACTED = {name: values for name, values in QUESTIONS.items() if name != "top_tenants"} | {
    "bill": QUESTIONS["bill"] | {"from": DATE},
}
# What the older files of the test lack.
LACKING = ["peak", "peak_direction", "container", "pod", "low", "high"]
# Of the few hosts of which there are older and newer files; the first question is about an older one.
VERSIONED = {
    "who_filled": QUESTIONS["who_filled"] | {"host": "node-0003"},
    "above": QUESTIONS["above"] | {"percent": 0.5},
    "bill": QUESTIONS["bill"] | {"tenant": "team-%"},
    "deployment": QUESTIONS["deployment"] | {"tenant": "team-%"},
}


def used(opened):
    """CPU time of the engine until now, s, without that of other programs."""
    if not hasattr(opened, "session") or not hasattr(opened.session, "sparkContext"):
        return time.process_time()
    pid = opened.session.sparkContext._gateway.proc.pid
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


def link(files, hour):
    """The same files of hosts in another hour's directory."""
    for file in files:
        target = hour / file.parent.name / file.name
        target.parent.mkdir(exist_ok=True)
        if not target.exists():
            os.link(file, target)


def answers(opened, engine, questions):
    found, seconds = {}, {}
    for name, values in questions.items():
        query = ask.question(engine, name, values)
        begin, before = time.monotonic(), used(opened)
        _, rows = opened.ask(query)
        seconds[name] = [time.monotonic() - begin, used(opened) - before]
        found[name] = [[ask.plain(cell) for cell in row] for row in rows]
    return found, seconds


def ask_all(engine, root, by_duckdb, by_spark, versions):
    opened = open_engine(engine, root)
    # The second time files are in the page cache, and a JVM is warm.
    answers(opened, engine, QUESTIONS)
    every, seconds = answers(opened, engine, QUESTIONS)
    result = {"answers": every, "seconds": seconds}
    for which, at in [("DuckDB", by_duckdb), ("Spark", by_spark)]:
        opened = open_engine(engine, at)
        rows, result["large_seconds"] = answers(opened, engine, COMPACTED)
        every |= {f"{name}, large files of {which}": it for name, it in rows.items()}
    # What the large files must give too: the same questions of the same hour in the small ones.
    hour = part(root.with_name("hour"))
    hour.mkdir(parents=True, exist_ok=True)
    link(hour_files(root), hour)
    rows, _ = answers(open_engine(engine, root.with_name("hour")), engine, COMPACTED)
    every |= {f"{name}, small files": it for name, it in rows.items()}
    rows, _ = answers(open_engine(engine, versions), engine, QUESTIONS | VERSIONED)
    every |= {f"{name}, two versions": it for name, it in rows.items()}
    ask_split(engine, root)
    return result | {"pruned": pruned(engine, root, by_duckdb)}


def ask_split(engine, root):
    """Fails if a window with two sets of rows has another rate."""
    whole, parts = (root.with_name(name) for name in ("whole", "split"))
    if not whole.exists():
        target = part(whole)
        target.mkdir(parents=True)
        link(hour_files(root)[:6], target)
        split.write(hour_files(whole), part(parts))
    questions = {name: VERSIONED[name] for name in ("above", "bill", "deployment")}
    expected, _ = answers(open_engine(engine, whole), engine, questions)
    found, _ = answers(open_engine(engine, parts), engine, questions)
    for name in questions:
        if not expected[name] or not compact.same(expected[name], found[name]):
            raise SystemExit(
                f"{engine}: {name}: split windows give {found[name][:2]}, and not {expected[name][:2]}"
            )


def compact_quoted(root):
    """Fails if a quote in the name of a cluster ends a string in SQL."""
    name = "o'hara"
    (file, *_) = hour_files(root)
    source = part(root.with_name("quoted"), layout.encoded(name)) / file.parent.name
    source.mkdir(parents=True, exist_ok=True)
    pq.write_table(renamed(pq.read_table(file), name), source / file.name)
    source, target = root.with_name("quoted"), root.with_name("quoted-large")
    compact.compact("duckdb", source, target, layout.encoded(name), DATE, HOUR)
    (made,) = part(target, layout.encoded(name)).glob("*.parquet")
    assert pq.read_metadata(made).metadata[b"uncore_trace.cluster"] == name.encode()


def versions(root, to):
    """Six hosts of the hour, two of each seed: files as they are, older and newer ones."""
    files = hour_files(root)[:6]
    target = part(to)
    target.mkdir(parents=True)
    for place, file in enumerate(files):
        rows = pq.read_table(file)
        metadata = dict(rows.schema.metadata)
        if place in (2, 3):
            rows = rows.drop_columns(LACKING)
            # Below the first version, so that it is told from it.
            metadata[b"uncore_trace.rollup_version"] = b"0"
        elif place in (4, 5):
            metadata[b"uncore_trace.rollup_version"] = b"99"
            rows = rows.add_column(0, "rack", pa.array(["r1"] * len(rows)))
            rows = rows.append_column("watts", pa.array([1.5] * len(rows)))
        (target / file.parent.name).mkdir()
        pq.write_table(rows.replace_schema_metadata(metadata), target / file.parent.name / file.name)
    # Sums over all of them, to be found whatever an engine makes of columns that are missing.
    rows = [pq.read_table(file, columns=["value", "unit", "link", "subsystem"]) for file in files]
    rows = pa.concat_tables(table.cast(pa.schema([
        ("value", pa.float64()), ("unit", pa.string()), ("link", pa.string()),
        ("subsystem", pa.string()),
    ])) for table in rows)  # fmt: skip
    rows = rows.filter((pc.field("unit") == "bytes") & pc.field("link").is_valid())
    opened = open_engine("duckdb", to)
    values = QUESTIONS["top_tenants"] | {"limit": 1000}
    _, tenants = opened.ask(ask.question("duckdb", "top_tenants", values))
    found = sum(row[4] for row in tenants)
    said = opened.connection.execute(
        ask.question("duckdb", "versions", {"root": to, "files": ask.FILES})
    ).fetchall()
    return {
        "sums": [pc.sum(rows["value"]).as_py() / 1e9, found],
        "said": [[row[0], row[3]] for row in said],
    }


def iceberg(root, large, warehouse):
    import iceberg as own
    import logging

    logging.disable(logging.WARNING)
    warehouse.mkdir()
    catalog = own.catalog(f"sqlite:///{warehouse}/catalog.db", f"file://{warehouse}")
    files = sorted(large.glob(layout.LARGE))
    # Beside the large files those of the other hours, as they are.
    others = sorted(set(root.glob(ask.FILES)) - set(hour_files(root)))
    table, _ = own.register(catalog, files + others)
    _, twice = own.register(catalog, files + others)
    hour = f"cluster == '{CLUSTER}' and ts >= '{DATE}T10:00:00+00:00' and ts < '{DATE}T11:00:00+00:00'"
    scan = table.scan(row_filter=hour, selected_fields=("value", "high", "pod"))
    planned = len(list(scan.plan_files()))
    rows = scan.to_arrow()
    expected = pa.concat_tables(
        pq.read_table(file, columns=["value", "high", "mono_ns"]) for file in hour_files(root)
    )
    sums = [
        [name, pc.sum(rows[name]).as_py(), pc.sum(expected[name]).as_py()] for name in ("value", "high")
    ]
    sums.append(["rows", rows.num_rows, expected.num_rows])

    def refused(name, act):
        try:
            act()
        except (Exception, SystemExit) as error:
            return [name, f"{type(error).__name__}: {error}".splitlines()[0]]
        return [name, None]

    spoiled = warehouse / "spoiled"
    spoiled.mkdir()
    rows = pq.read_table(others[0]).slice(0, 1000)
    nanos = rows.set_column(
        rows.column_names.index("ts"), "ts", rows["ts"].cast(pa.timestamp("ns", "UTC"))
    )
    pq.write_table(nanos, spoiled / "nanoseconds.parquet")
    words = [name for name in rows.column_names if name != "cluster"]
    pq.write_table(rows, spoiled / "no-statistics.parquet", write_statistics=words)
    # What pyiceberg itself makes of the second: it takes it, and finds nothing.
    loose = own.catalog(f"sqlite:///{warehouse}/loose.db", f"file://{warehouse}")
    footer, own.footer = own.footer, pq.read_metadata
    lost, _ = own.register(loose, [spoiled / "no-statistics.parquet"])
    own.footer = footer
    return {
        "files": [planned, len(files + others), len(files)],
        "sums": sums,
        "refused": [
            refused("nanoseconds", lambda: own.register(catalog, [spoiled / "nanoseconds.parquet"])),
            refused("statistics", lambda: own.register(catalog, [spoiled / "no-statistics.parquet"])),
        ],
        "twice": twice,
        "lost": len(lost.scan(row_filter=f"cluster == '{CLUSTER}'").to_arrow()),
    }


def size(root):
    """Bytes of a host-hour, rows of it, and of how many hosts."""
    files = hour_files(root)
    return {
        "hosts": len(files),
        "bytes": sum(file.stat().st_size for file in files) / len(files),
        "rows": sum(pq.read_metadata(file).num_rows for file in files) / len(files),
        "groups": sum(pq.read_metadata(file).num_row_groups for file in files),
        "files": len(files),
    }


def main():
    match sys.argv[1:]:
        case ["ask", engine, *roots]:
            answer = ask_all(engine, *map(pathlib.Path, roots))
        case ["compact", engine, root, to]:
            begin = time.monotonic()
            # Four files or so, so that there are some to leave out.
            limit = sum(file.stat().st_size for file in hour_files(pathlib.Path(root))) // 4
            *files, left = compact.compact(engine, root, to, CLUSTER, DATE, HOUR, limit)
            assert not left, left
            seconds = time.monotonic() - begin
            root, to = pathlib.Path(root), pathlib.Path(to)
            answer = {"files": files, "seconds": seconds, "bytes": size(to)["bytes"] * files[1]}
            answer |= {"bloom": bloom(root, to), "groups": size(to)["groups"]}
            if engine == "duckdb":
                compact_quoted(root)
        case ["versions", root, to]:
            answer = versions(pathlib.Path(root), pathlib.Path(to))
        case ["iceberg", root, large, warehouse]:
            answer = iceberg(*map(pathlib.Path, (root, large, warehouse)))
        case ["size", root]:
            answer = size(pathlib.Path(root))
        case other:
            sys.exit(f"unknown: {other}")
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
