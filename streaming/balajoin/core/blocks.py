"""Blocks: many rows as one Arrow IPC stream. Between the edge and the result, rows move only in blocks.

Spark sees one row for each block, so its cost per row (shuffle, state, the Python boundary) is shared by many records.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from balajoin.core.kernels import kernel
from balajoin.errors import BlockError

Compression = Literal["lz4", "zstd"] | None

ROWS = pa.schema(
    [
        ("hash", pa.int64()),
        ("time", pa.int64()),  # microseconds since the epoch, like Spark's timestamps
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)

# Arrow's binary columns address 2 GiB. A block stays far below that, so concatenating a few never overflows.
MAX_BLOCK_BYTES = 32 << 20
# Between operators a block passes the JVM's heap several times, once in a buffer of twice its size. An object larger
# than half a region of the G1 collector (a region is 1 MiB in a heap of 4 GiB) makes G1 mark the whole heap: a batch of
# 1.1M rows took all processes 14.6 s of CPU time with blocks of 7 MB, and 12.9 s with these (means of two runs each).
SENT_BLOCK_BYTES = 448 << 10
# Blocks are compressed once, here, and not by Spark's shuffle: every copy of a block on its way, about ten from one
# operator to the next, is then of half the bytes (a row of a 63-byte JSON value: 58 bytes of 108). LZ4 takes 0.03 µs of
# CPU a row. Stored blocks gain as well: to hand them to Spark was 0.7 of the 1.7 s of a node with 275k rows.
_COMPRESSION: Compression = "lz4"
# The largest size to which a block may unpack. A larger block, of a single row, is written uncompressed.
_MAX_UNPACKED_BYTES = 2 * MAX_BLOCK_BYTES

# A row's time is within the years 1 to 9999. Any other time is a mistake, and would expire all stored rows.
EARLIEST_US, LATEST_US = -62_135_596_800_000_000, 253_402_300_799_999_999

# Fields of Arrow's Message and RecordBatch, by number.
_MESSAGE_HEADER, _BATCH_BUFFERS, _BATCH_COMPRESSION = 2, 2, 3

_CHECKSUM_BYTES = 8  # a CRC-32, and zeros that keep Arrow's buffers aligned; ~0.3 ns a byte


def encode(rows: pa.Table, compression: Compression = _COMPRESSION) -> bytes:
    return bytes(_encoded(rows, compression).to_pybytes())


def encode_as_column(rows: pa.Table, compression: Compression = _COMPRESSION) -> pa.BinaryArray:
    """A column whose only value is the block. Nothing copies the block: the column has the buffer it was written to."""
    block = _encoded(rows, compression)
    return pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(np.array([0, block.size], np.int32)), block])


def _encoded(rows: pa.Table, compression: Compression) -> pa.Buffer:
    if rows.nbytes > MAX_BLOCK_BYTES:
        compression = None
    sink = pa.BufferOutputStream()
    sink.write(bytes(_CHECKSUM_BYTES))
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write_table(rows)
    block = sink.getvalue()
    written = np.frombuffer(block, np.uint8)
    written[:_CHECKSUM_BYTES] = np.frombuffer(_checksum(written[_CHECKSUM_BYTES:]), np.uint8)
    return block


def _checksum(content: Any) -> bytes:
    return zlib.crc32(content).to_bytes(_CHECKSUM_BYTES, "little")


def decode(block: bytes | pa.Buffer, schema: pa.Schema = ROWS) -> pa.Table:
    """The rows, without a copy. Bytes that are not rows as the operators expect them raise a BlockError."""
    whole = pa.py_buffer(block)
    if whole.size <= _CHECKSUM_BYTES:
        raise BlockError(f"{whole.size} bytes are not a block of rows")
    content = whole.slice(_CHECKSUM_BYTES)
    if bytes(whole.slice(0, _CHECKSUM_BYTES)) != _checksum(content):
        raise BlockError("not a block of rows, or a damaged one")
    return checked_rows(content, schema)


def checked_rows(content: pa.Buffer, schema: pa.Schema = ROWS) -> pa.Table:
    """The rows of an Arrow stream, without a copy, or a BlockError.

    A checksum keeps out damage but not malice, because anyone can compute one. Arrow's reader and kernels trust the
    offsets and sizes in the stream, so both are checked first (2 ns a row, 12 µs a block).
    """
    try:
        rows = pa.Table.from_batches(_batches(content, schema), schema)
        rows.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, struct.error) as broken:
        raise BlockError(f"not a block of rows: {broken}") from broken
    if schema is ROWS and any(rows.column(name).null_count for name in ROWS.names if name != "value"):
        raise BlockError("a block with rows that lack what only a value may lack")
    return rows


def _batches(content: pa.Buffer, schema: pa.Schema) -> list[pa.RecordBatch]:
    first, *messages = pa.ipc.MessageReader.open_stream(content)
    found = pa.ipc.read_schema(first)
    if found != schema:
        raise BlockError(f"a block with other columns than expected: {found.names}")
    unpacked = sum(map(_unpacked_bytes, messages))
    if unpacked > _MAX_UNPACKED_BYTES:
        raise BlockError(f"a block that would unpack to {unpacked} bytes")
    return [pa.ipc.read_record_batch(message, schema) for message in messages]


def _unpacked_bytes(message: pa.ipc.Message) -> int:
    """The size to which a record batch claims to unpack. Arrow allocates that much before it looks further.

    The claim is in Arrow's header, a FlatBuffer: https://arrow.apache.org/docs/format/Columnar.html#compression.
    """
    if message.type != "record batch":
        return 0
    header = memoryview(message.metadata)
    batch = _follow(header, _field(header, _follow(header, 0), _MESSAGE_HEADER))
    if not _field(header, batch, _BATCH_COMPRESSION):
        return 0
    places = _follow(header, _field(header, batch, _BATCH_BUFFERS))
    (count,) = struct.unpack_from("<I", header, places)
    unpacked = 0
    for number in range(count):
        start, length = struct.unpack_from("<qq", header, places + 4 + 16 * number)
        if length:
            (claimed,) = struct.unpack_from("<q", message.body, start)  # -1: not compressed
            unpacked += max(claimed, 0)
    return unpacked


def _follow(header: memoryview, at: int) -> int:
    """The position that a FlatBuffer's reference points to."""
    return int(at + struct.unpack_from("<I", header, at)[0])


def _field(header: memoryview, table: int, number: int) -> int:
    """The position of this field of a FlatBuffer's table; 0 if the table does not have it."""
    vtable = table - struct.unpack_from("<i", header, table)[0]
    size = struct.unpack_from("<H", header, vtable)[0]
    at = 4 + 2 * number
    offset = struct.unpack_from("<H", header, vtable + at)[0] if at < size else 0
    return int(table + offset) if offset else 0


def concat(tables: Sequence[pa.Table]) -> pa.Table:
    """One table in one chunk, so that kernels see plain arrays."""
    if not tables:
        return ROWS.empty_table()
    return pa.concat_tables(tables).combine_chunks()


def pieces(tables: Sequence[pa.Table], max_bytes: int = MAX_BLOCK_BYTES) -> Iterator[pa.Table]:
    """The rows of `tables`, in order, as single-chunk tables of at most about `max_bytes`."""
    pending: list[pa.Table] = []
    size = 0
    for table in tables:
        for part in _split(table, max_bytes):
            if pending and size + part.nbytes > max_bytes:
                yield concat(pending)
                pending, size = [], 0
            pending.append(part)
            size += part.nbytes
    if pending:
        yield concat(pending)


def _split(table: pa.Table, max_bytes: int) -> Iterator[pa.Table]:
    if table.num_rows == 0:
        return
    if table.nbytes <= max_bytes or table.num_rows == 1:
        yield table
        return
    parts = min(-(-table.nbytes // max_bytes), table.num_rows)
    edges = [table.num_rows * part // parts for part in range(parts + 1)]
    for start, end in pairwise(edges):
        yield from _split(table.slice(start, end - start), max_bytes)


def longs(rows: pa.Table, column: str) -> NDArray[np.int64]:
    """A fixed-width column of a single-chunk table, without a copy."""
    chunks = rows.column(column).chunks
    if not chunks:
        return np.empty(0, np.int64)
    return np.asarray(chunks[0].to_numpy())


def binary(rows: pa.Table, column: str) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Offsets and bytes of a binary column of a single-chunk table, without a copy."""
    chunks = rows.column(column).chunks
    if not chunks:
        return np.zeros(1, np.int32), np.empty(0, np.uint8)
    array = chunks[0]
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    return ends, np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)


@kernel
def _order_kernel(target: NDArray[np.int32], counts: NDArray[np.int64]) -> NDArray[np.int32]:
    starts = np.cumsum(counts) - counts
    order = np.empty(len(target), np.int32)
    for i in range(len(target)):
        order[starts[target[i]]] = i
        starts[target[i]] += 1
    return order


def partition_by(rows: pa.Table, target: NDArray[np.int32], targets: int) -> list[pa.Table]:
    """One table for each target, with its rows in order: slices of a single gather."""
    counts = np.bincount(target, minlength=targets)
    if counts.max(initial=0) == len(target):
        return [rows if count else rows.slice(0, 0) for count in counts]
    gathered = rows.take(pa.array(_order_kernel(target, counts)))
    ends = np.cumsum(counts)
    return [gathered.slice(end - count, count) for end, count in zip(ends, counts, strict=True)]
