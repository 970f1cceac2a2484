"""Recordings of uncore-trace in Python.

    import uncore_trace

    rows = uncore_trace.read("samples/grace")
    uncore_trace.sums(rows, by="cgroup")       # a line for each event, owner and cgroup, with a 90 % interval
    uncore_trace.windows(rows, by="cgroup")    # also the windows in which a cgroup had nothing

Rows are a `pyarrow.Table` or anything that gives one by `__arrow_c_stream__`, such as a DataFrame of pandas or Polars.
Results are a `pyarrow.Table`: `.to_pandas(types_mapper=pandas.ArrowDtype)` and `polars.from_arrow` make frames of it
that keep the types. That of `windows` has the table as `table`, all of its attributes, and `plot()`.
The rules are those of `uncore-trace report`; docs/tables.md describes the columns of the tables.
"""

from ._read import read
from ._sound import Damaged
from ._sums import sums
from ._windows import Windows, windows

__all__ = ["Damaged", "Windows", "read", "sums", "windows"]
