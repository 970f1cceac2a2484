"""Windows with two sets of rows, as after a restart of the agent, or between parts of a recording."""

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

# Each third window is split. The first set knows a quarter of the time and has half of the count.
EVERY, TIME, COUNT = 3, 4, 0.5


def split(rows):
    """The first sets with the windows that are whole, and the second sets."""
    ends = rows["mono_ns"].unique().sort()
    chosen = pc.is_in(rows["mono_ns"], value_set=ends.take(pa.array(range(0, len(ends), EVERY))))
    first, second = rows.filter(chosen), rows.filter(chosen)

    def put(table, name, column):
        at = table.column_names.index(name)
        return table.set_column(at, table.schema.field(at), column.cast(table.schema.field(at).type))

    known = pc.divide(first["known_ns"], TIME)
    second = put(second, "known_ns", pc.subtract(second["known_ns"], known))
    first = put(first, "known_ns", known)
    for name in ("value", "low", "high", "total"):
        first = put(first, name, pc.multiply(first[name], COUNT))
        second = put(second, name, pc.multiply(second[name], 1 - COUNT))
    return pa.concat_tables([rows.filter(pc.invert(chosen)), first]), second


def write(files, target):
    """Writes files of the same hosts in which windows are split."""
    target.mkdir(parents=True)
    for file in files:
        for number, rows in enumerate(split(pq.read_table(file))):
            host = target / file.parent.name
            host.mkdir(exist_ok=True)
            pq.write_table(rows, host / f"{file.stem}{number}.parquet")
