"""Runs what is for analysts; an assertion that fails is the error.

    analysis.py sums RECORDING    {key: [value, low, high, per_s, known_s, confidence]} of DuckDB and of Python, as JSON
    analysis.py windows RECORDING    what DuckDB and Python give for windows, compared with each other
    analysis.py document PROGRAM [update]    docs/analysis.md and docs/analysis-more.md: each query in SQL and in Python, and its answer
    analysis.py notebook    python/notebook.ipynb: each cell

They run in the root of the repository.
"""

import ast
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, "python")

import duckdb  # noqa: E402
import pandas as pd  # noqa: E402
import uncore_trace  # noqa: E402

# Lines of `report --by ...`: an expression of SQL, and columns with the same lines.
LINES = {
    "cgroup": ("cgroup", ["cgroup"]),
    "owner": ("owner", ["owner"]),
    "pid": ("comm || ' (' || pid || ')'", ["comm", "pid"]),
}
MACROS = pathlib.Path("queries/fabric.sql").read_text()


def connect():
    db = duckdb.connect()
    # A query that takes seconds would print its progress on stdout.
    db.execute("SET enable_progress_bar = false")
    return db


def database(recording):
    db = connect()
    db.execute(f"CREATE VIEW fabric AS FROM '{recording}/fabric.parquet'")
    db.execute(MACROS)
    return db


def name(event, filter_):
    return f"{event}[{filter_}]" if filter_ else event


def keyed(rows):
    """Numbers of rows by event, owner and key."""
    found = {}
    for event, filter_, _unit, owner, key, *numbers in rows:
        at = json.dumps([name(event, filter_), owner, key or owner])
        assert at not in found, at
        found[at] = [None if number is None or number != number else number for number in numbers]
    return found


def joined(row, by, columns):
    """The values of a row of Python as SQL has them: the columns of `by` are one key, as `report` writes it."""
    parts = [row[name] for name in by]
    key = None if parts[-1] is None else f"{parts[0]} ({parts[1]})" if len(by) == 2 else parts[0]
    return [key if name == "key" else row[name] for name in columns]


def processes(rows, line):
    """With `pid` only those of processes: of interrupts, `report` has no line by name."""
    return [row for row in rows if line != "pid" or row[4] is not None]


def sums(recording):
    db, rows = database(recording), uncore_trace.read(recording)
    columns = "event, filter, unit, owner, key, value, low, high, per_s, known_s, confidence"
    answer = {}
    for line, (sql, by) in LINES.items():
        by_process = line == "pid"
        asked = db.execute(f"SELECT {columns} FROM sums('fabric', {sql}, by_process := {by_process})").fetchall()
        for given in (rows, rows.to_pandas(types_mapper=pd.ArrowDtype)):
            table = uncore_trace.sums(given, by)
            own = [joined(row, by, columns.split(", ")) for row in table.to_pylist()]
            answer[f"python {line}"] = keyed(processes(own, line))
        answer[f"duckdb {line}"] = keyed(processes(asked, line))
    return answer


def windows(recording):
    db, rows = database(recording), uncore_trace.read(recording)
    theirs = db.execute("SELECT * REPLACE (epoch_us(ts) AS ts) FROM windows('fabric', cgroup)").fetchall()
    table = uncore_trace.windows(rows, "cgroup")
    ours = [list(row.values()) for row in table.to_pylist()]
    at = lambda row: json.dumps([row[0], row[1], row[3], row[4], row[6]])  # noqa: E731
    theirs, ours = {at(row): row for row in theirs}, {at(row): row for row in ours}
    assert theirs.keys() == ours.keys()
    zeros = nulls = 0
    for key, (*_, value, per_s) in ours.items():
        assert same(value, theirs[key][-2]) and same(per_s, theirs[key][-1]), (key, value, theirs[key])
        zeros, nulls = zeros + (value == 0), nulls + (value is None)
    # Each line has each moment of its event.
    moments = dict(
        db.execute("SELECT event || '/' || filter, count(DISTINCT mono_ns) FROM fabric GROUP BY ALL").fetchall()
    )
    lines = {json.dumps(row[:5]): f"{row[0]}/{row[1]}" for row in ours.values()}
    assert len(ours) == sum(moments[event] for event in lines.values()), (len(ours), moments, lines)
    # Nothing is lost or added.
    whole = db.execute("SELECT sum(value) FROM fabric WHERE total IS NOT NULL").fetchone()[0]
    return {"rows": len(ours), "zeros": zeros, "nulls": nulls, "value": sum(row[-2] or 0 for row in ours.values()), "whole": whole}


def same(a, b):
    if a is None or b is None:
        return a is b
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
    return a == b


def fenced(text):
    """(language, lines) of each block, in order, and where it begins and ends."""
    return [(it[1], it[2], it.span(2)) for it in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.S | re.M)]


def execute(source, names):
    """Runs a program; gives the value of its last line if that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<block>", "exec"), names)
    return eval(compile(ast.Expression(last.value), "<block>", "eval"), names) if last else None


def plain(value):
    """A value of a frame as Python has it."""
    if value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and value != value):
        return None
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, pd.Timestamp):
        value = value.tz_localize(None) if value.tzinfo else value
        return value.isoformat()
    return value


def rows_of(frame):
    return [[plain(value) for value in row] for row in frame.itertuples(index=False, name=None)]


def shown(frame):
    """A frame as the document shows it: null as DuckDB writes it, times to the second."""
    columns = [str(column) for column in frame.columns]
    lines = [["NULL" if cell is None else f"{cell:g}" if isinstance(cell, float) and abs(cell) < 1e6 else str(cell) for cell in row] for row in rows_of(frame)]
    is_number = [all(isinstance(row[at], (int, float, type(None))) for row in rows_of(frame)) for at in range(len(columns))]
    widths = [max(len(line[at]) for line in [columns, *lines]) for at in range(len(columns))]
    def text(line):
        cells = [cell.rjust(width) if right else cell.ljust(width) for cell, width, right in zip(line, widths, is_number)]
        return "  ".join(cells).rstrip()
    return "\n".join(text(line) for line in [columns, *lines]) + "\n"


def document(program, update):
    """Each section `## N. QUESTION` has `sql`, `python` and `text`; a block before the first is for all of them."""
    os.environ["PATH"] = f"{pathlib.Path(program).parent}:{os.environ['PATH']}"
    answers = 0
    with tempfile.TemporaryDirectory() as temporary:
        def here(source):
            """The reader's directory /tmp/uncore-trace is this test's own."""
            return source.replace("/tmp/uncore-trace", temporary)

        db, names = connect(), {}
        for page in ("docs/analysis.md", "docs/analysis-more.md"):
            answers += questions(pathlib.Path(page), here, db, names, update)
    return answers


def questions(path, here, db, names, update):
    """Those of one page, after the blocks of the page before. Gives the number of answers."""
    text = path.read_text()
    answers, sql, python = 0, None, None
    renewed, done = "", 0
    for language, block, (begin, end) in fenced(text):
        renewed += text[done:begin]
        match language:
            case "sh" if "uncore-trace" in block:
                subprocess.run(here(block), shell=True, check=True)
            case "sql":
                source = here(block).replace(".read queries/fabric.sql\n", MACROS)
                sql = db.sql(source.rstrip().rstrip(";")) if sql_asks(block) else db.execute(source) and None
            case "python":
                python = execute(here(block), names)
            case "text":
                theirs, ours = sql.df(), python
                assert list(theirs.columns) == list(ours.columns), (list(theirs.columns), list(ours.columns))
                a, b = rows_of(theirs), rows_of(ours)
                assert len(a) == len(b), f"SQL:\n{theirs}\nPython:\n{ours}"
                for one, other in zip(a, b):
                    assert all(map(same, one, other)), f"SQL: {one}\nPython: {other}"
                found = shown(theirs)
                if not update:
                    assert found == block, f"the document says:\n{block}\nit is:\n{found}"
                block, answers = found, answers + 1
        renewed, done = renewed + block, end
    if update:
        path.write_text(renewed + text[done:])
    return answers


def sql_asks(block):
    return not block.startswith(("CREATE", ".read", "--"))


def notebook():
    cells = json.loads(pathlib.Path("python/notebook.ipynb").read_text())["cells"]
    names, ran = {}, 0
    for cell in cells:
        if cell["cell_type"] == "code":
            execute("".join(cell["source"]), names)
            ran += 1
    return ran


match sys.argv[1:]:
    case ["sums", recording]:
        answer = sums(recording)
    case ["windows", recording]:
        answer = windows(recording)
    case ["document", program, *update]:
        answer = document(program, update == ["update"])
    case ["notebook"]:
        answer = notebook()
    case other:
        sys.exit(f"unknown: {other}")
json.dump(answer, sys.stdout)
