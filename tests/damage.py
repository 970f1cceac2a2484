"""Reads damaged recordings with the package for Python.

    damage.py flips FILE SCRATCH    for each of many bytes of FILE, with one bit changed: what `read` did, as JSON
    damage.py read PATH TABLE    the first line of the error, or the number of rows, as JSON
"""

import json
import os
import pathlib
import random
import sys

sys.path.insert(0, "python")

import uncore_trace  # noqa: E402

FLIPS = 250


def flips(file, scratch):
    """The program must not end the test: each file is read in a process of its own."""
    data, expected = pathlib.Path(file).read_bytes(), uncore_trace.read(file)
    chance = random.Random(5)
    places = [chance.randrange(len(data)) for _ in range(FLIPS)] + [0, 3, len(data) - 1, len(data) - 5, len(data) - 8]
    found = {}
    for place in places:
        changed = bytearray(data)
        changed[place] ^= 1 << chance.randrange(8)
        pathlib.Path(scratch).write_bytes(changed)
        child = os.fork()
        if child == 0:
            try:
                os._exit(0 if uncore_trace.read(scratch).equals(expected) else 1)
            except BaseException:
                os._exit(2)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        what = {0: "the same", 1: "other values", 2: "an error"}.get(status, "an end of the process")
        found[what] = found.get(what, 0) + 1
    return found


def read(path, table):
    try:
        return len(uncore_trace.read(path, table))
    except (uncore_trace.Damaged, OSError) as error:
        return str(error).partition("\n")[0]


print(json.dumps({"flips": flips, "read": read}[sys.argv[1]](*sys.argv[2:])))
