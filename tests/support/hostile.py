"""State, records and blocks that an attacker has forged, with correct checksums."""

import json
import struct
import zlib
from typing import Any, get_args

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from balajoin.compute.unmatched import marks
from balajoin.control.encoding import report_records, shipment_records, signal_record, tick_record
from balajoin.core.blocks import ROWS, encode
from balajoin.core.hashing import home
from balajoin.core.messages import Grant, Report, Shipment, Signal, Stamp
from balajoin.core.spec import JoinSpec, JoinType
from oracle import Row
from strategies import SECOND, hash_of, table

NODES = 3
STAMP = Stamp("6f1e", 41)
NOW = Stamp("6f1e", 42)

longs = st.integers(-(1 << 63), (1 << 63) - 1)
odd_texts = st.text(st.characters(), max_size=8) | st.sampled_from(["\ud800", "\0", "\x1b[2J", "../..", "nan", "1e999"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | longs | st.floats() | odd_texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(odd_texts, inner, max_size=3),
    max_leaves=5,
)
arrays = st.sampled_from(
    [
        np.zeros(0, np.int64),
        np.full((3, 4), 1 << 62),
        np.full((3, 2), -1),
        np.full(NODES, -(1 << 63)),
        np.arange(6.0),
        np.array([True]),
        np.arange(12, dtype=np.int64).reshape(3, 4),
    ]
)


@st.composite
def changed(draw: st.DrawFn, value: Any, others: st.SearchStrategy[Any] = json_values) -> Any:
    """The value with one part, at any depth, replaced or left out."""
    if isinstance(value, dict | list) and len(value) and draw(st.integers(0, 5)):
        parts = dict(value) if isinstance(value, dict) else list(value)
        at = draw(st.sampled_from(sorted(parts) if isinstance(parts, dict) else range(len(parts))))
        if draw(st.integers(0, 9)):
            parts[at] = draw(changed(parts[at], others))
        else:
            del parts[at]
        return parts
    return draw(others)


HASHES = [hash_of(b"%d" % n) for n in range(20)]
ROWS_OF_0 = table(
    [row for row in (Row(b"%d" % n, n, b"v", 0, n) for n in range(20)) if home(hash_of(row.key), NODES) == 0]
)
A_SIGNAL = json.loads(signal_record(STAMP, 0, Signal(HASHES[0], 1, 5 * SECOND, key=b"k")).value)
(A_RECORD,) = shipment_records(STAMP, Shipment(0, 1, [ROWS_OF_0], [Grant(HASHES[0], 7)], [HASHES[0]]))
A_HEADER = json.loads(A_RECORD.headers[0][1])
A_TICK = json.loads(tick_record(STAMP, 1_700_000_000_000).value)
(A_REPORTING,) = report_records(STAMP, Report(1, 0, [marks(ROWS_OF_0, np.arange(3))]))
A_REPORT = json.loads(A_REPORTING.headers[0][1])
EMPTY_ROW = {"section": "probe", "source": 0, "watermark": 0, "now_ms": 0, "note": None, "block": None}


join_types = st.sampled_from(get_args(JoinType))


def spec(type_: JoinType = "inner") -> JoinSpec:
    return JoinSpec(NODES, 10 * SECOND, 5 * SECOND, 0, 60_000, {"probe": 1, "build": 1}, {}, type_)


def sealed(content: bytes) -> bytes:
    """The content with a correct checksum, as an attacker would write it."""
    return zlib.crc32(content).to_bytes(8, "little") + content


@st.composite
def hostile_blocks(draw: st.DrawFn) -> bytes:
    compression = draw(st.sampled_from([None, "lz4", "zstd"]))
    content = bytearray(
        encode(draw(st.sampled_from([ROWS_OF_0, ROWS_OF_0.slice(0, 1), ROWS.empty_table()])), compression)[8:]
    )
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(content) - 1))
        width = draw(st.sampled_from([1, 1, 2, 4, 8]))
        value = draw(st.sampled_from([0, 1, -1, 1 << 62, -(1 << 63), 1 << 31]) | longs)
        new = struct.pack("<q", value)[:width]
        content[at : at + draw(st.sampled_from([width, width, 0]))] = new
    return sealed(bytes(content[: draw(st.just(len(content)) | st.integers(0, len(content)))]))


def stream(rows: pa.Table, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(rows)
    return sink.getvalue().to_pybytes()
