"""Prints every text in the recordings of a directory, its metadata included, as a JSON list.

`samples.py DIR`
"""

import json
import pathlib
import sys

import pyarrow as pa
import pyarrow.parquet as pq

found = set()
for file in sorted(pathlib.Path(sys.argv[1]).rglob("*.parquet")):
    table = pq.read_table(file)
    for column in table.columns:
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if pa.types.is_string(kind):
            found.update(text for text in column.to_pylist() if text is not None)
    # The Arrow schema is base64.
    pairs = pq.read_metadata(file).metadata.items()
    found.update(text.decode() for key, text in pairs if key != b"ARROW:schema")
json.dump(sorted(found), sys.stdout)
