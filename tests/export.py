"""Reads the output of `uncore-trace export` with other programs; writes JSON to stdout.

Modes: `csv FILE`, `arrow FILE`, `perfetto FILE RECORDING BEGIN_NS END_NS`. What
does not hold fails with an assertion.
"""

import json
import sys
from collections import defaultdict


def sums(frame):
    """Value and rows by event and owner."""
    groups = frame.groupby(["event", "owner"], observed=True).value.agg(["sum", "count"])
    return {"/".join(index): [row["sum"], int(row["count"])] for index, row in groups.iterrows()}


def csv(file):
    import pandas

    return {"sums": sums(pandas.read_csv(file, na_values=[""], keep_default_na=False))}


def arrow(file):
    import pyarrow.ipc

    with pyarrow.ipc.open_file(file) as reader:
        table = reader.read_all()
    metadata = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
    return {
        "columns": table.column_names,
        "pmu": str(table.schema.field("pmu").type),
        "tick_ns": metadata["uncore_trace.tick_ns"],
        "sums": sums(table.to_pandas()),
    }


class Trace:
    """A trace as Perfetto's own description of it decodes it."""

    def __init__(self, file):
        from google.protobuf.unknown_fields import UnknownFieldSet
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto

        self.event = proto.TrackEvent
        self.trace = proto.Trace()
        with open(file, "rb") as stream:
            self.trace.ParseFromString(stream.read())
        assert not UnknownFieldSet(self.trace)
        names, details, self.paths, self.units = {}, {}, {}, {}
        self.events = defaultdict(list)
        for number, packet in enumerate(self.trace.packet):
            assert not UnknownFieldSet(packet) and packet.trusted_packet_sequence_id == 1
            assert bool(packet.sequence_flags & 1) == (number == 0)
            for name in packet.interned_data.event_names:
                names[name.iid] = name.name
            for name in packet.interned_data.debug_annotation_names:
                details[name.iid] = name.name
            if packet.HasField("track_descriptor"):
                self.add_track(packet.track_descriptor)
            if packet.HasField("track_event"):
                event = packet.track_event
                assert not UnknownFieldSet(event) and packet.sequence_flags & 2
                values = {
                    details[its.name_iid]: its.string_value or its.int_value
                    for its in event.debug_annotations
                }
                name = names[event.name_iid] if event.name_iid else ""
                at = (packet.timestamp, event.type, name, event.double_counter_value, values)
                self.events[self.paths[event.track_uuid]].append(at)
        clocks = self.trace.packet[0].clock_snapshot.clocks
        self.clocks = {clock.clock_id: clock.timestamp for clock in clocks}
        assert self.trace.packet[0].trace_packet_defaults.timestamp_clock_id == 3

    def add_track(self, track):
        parent = self.paths[track.parent_uuid] if track.parent_uuid else ()
        path = (*parent, track.name)
        assert path not in self.paths.values(), path
        self.paths[track.uuid] = path
        if track.HasField("counter"):
            self.units[path] = track.counter.unit_name


def integral(values, end):
    """Of a line that holds each value until the next."""
    ends = [time for time, _ in values[1:]] + [end]
    return sum(value * (to - at) / 1e9 for (at, value), to in zip(values, ends))


def rates(trace, end):
    """What each event comes to, and how far at any time its parts are from it."""
    lines = defaultdict(dict)
    for path in trace.units:
        events = trace.events[path]
        assert all(kind == trace.event.TYPE_COUNTER for _, kind, *_ in events), path
        values = [(time, value) for time, _, _, value, _ in events]
        assert values and values == sorted(values, key=lambda it: it[0]), path
        lines[path[:-1]][path[-1]] = values
    answer = {}
    for path, of in lines.items():
        changes = defaultdict(dict)
        for name, values in of.items():
            for time, value in values:
                changes[time][name] = value
        now, worst = dict.fromkeys(of, 0.0), 0.0
        for time in sorted(changes):
            now.update(changes[time])
            total = now["total"]
            parts = sum(value for name, value in now.items() if name != "total")
            worst = max(worst, abs(parts - total) / max(abs(total), 1e-300) if total else parts)
        unknown = trace.events[(*path, "not known")]
        answer["/".join(path)] = {
            "unit": trace.units[(*path, "total")],
            "total": integral(of["total"], end),
            "lines": {name: integral(values, end) for name, values in of.items()},
            "times": len(changes),
            "worst": worst,
            "unknown": len(unknown),
        }
    return answer


def slices(trace):
    """Time by cgroup and thread of the slices on each CPU's track, which never overlap."""
    times = defaultdict(int)
    for path, events in trace.events.items():
        if path[0] != "Who ran":
            continue
        begin, name, last = None, None, 0
        for time, kind, its, _, details in events:
            assert time >= last, path
            last = time
            if kind == trace.event.TYPE_SLICE_BEGIN:
                assert begin is None, path
                begin, name = time, f"{details['cgroup']} {its}"
                assert set(details) == {"cgroup", "tid", "pid", "interrupts_ns"}, details
            else:
                assert kind == trace.event.TYPE_SLICE_END and begin is not None, path
                times[name] += time - begin
                begin = None
        assert begin is None, path
    return times


def stored(recording, begin, end):
    """The same from the recording."""
    import duckdb

    query = f"""SELECT coalesce(path, '(cgroup id ' || cgroup_id || ')') || ' ' || comm AS name,
                       sum(least(end_ns, {end}) - greatest(begin_ns, {begin}))
                FROM '{recording}/slices.parquet'
                LEFT JOIN '{recording}/cgroups.parquet' ON id = cgroup_id
                WHERE tid <> 0 AND begin_ns < {end} AND end_ns > {begin} GROUP BY ALL"""
    return dict(duckdb.execute(query).fetchall())


def perfetto(file, recording, begin, end):
    trace = Trace(file)
    notes = [name for at in trace.events if at == ("Notes",) for _, _, name, *_ in trace.events[at]]
    return {
        "rates": rates(trace, int(end)),
        "slices": slices(trace),
        "stored": {name: int(ns) for name, ns in stored(recording, begin, end).items()},
        "clocks": [trace.clocks[3], trace.clocks[1]],
        "notes": len(notes),
    }


mode, *rest = sys.argv[1:]
modes = {"csv": csv, "arrow": arrow, "perfetto": perfetto}
json.dump(modes[mode](*rest), sys.stdout)
