"""Results as Kafka records, made from Arrow columns without Spark: what a node needs to write its results itself.

The bytes are those that Spark's `to_json` gives, so a service may go from one way of writing to the other.
"""

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from balajoin.core.kernels import kernel
from balajoin.core.spec import KINDS, JoinType, ResultFormat

Bytes = NDArray[np.uint8]
Offsets = NDArray[np.int32]

_POSITIONS = ("probe_partition", "probe_offset", "build_partition", "build_offset")
_COLUMN_NAME = r"key|probe_value|build_value|id"
_CONCAT = re.compile(rf"\s*concat\s*\(\s*((?:{_COLUMN_NAME})(?:\s*,\s*(?:{_COLUMN_NAME}))*)\s*\)\s*", re.IGNORECASE)
_ONE = re.compile(rf"\s*({_COLUMN_NAME})\s*", re.IGNORECASE)
_TIME_CHARACTERS = 24  # 2026-11-18T12:34:56.789Z
_POSITION_CHARACTERS = 64  # two partitions of 11 characters, two offsets of 20, and what is between them


class ResultEncoder:
    """Encodes the columns of `compute.pairs.PAIRS` as keys and values of the output topic."""

    def __init__(self, format_: ResultFormat) -> None:
        self._format = format_

    def records(self, results: pa.Table) -> pa.RecordBatch:
        """The columns key, value and, if asked for, id, all binary. There must be rows."""
        (batch,) = results.combine_chunks().to_batches()
        columns = {"key": batch.column("key"), "value": self._value(batch)}
        if self._format.with_id:
            columns["id"] = self._id(batch)
        return pa.record_batch(columns)

    def _value(self, batch: pa.RecordBatch) -> pa.Array:
        if not self._format.value_columns:
            return self._json(batch)
        columns = [self._id(batch) if name == "id" else batch.column(name) for name in self._format.value_columns]
        return columns[0] if len(columns) == 1 else pc.binary_join_element_wise(*columns, b"")

    def _id(self, batch: pa.RecordBatch, prefix: bytes = b"", suffix: bytes = b"") -> pa.Array:
        positions = np.empty((len(_POSITIONS), batch.num_rows), np.int64)
        known = np.empty((len(_POSITIONS), batch.num_rows), np.bool_)
        for at, name in enumerate(_POSITIONS):
            positions[at], known[at] = _numbers(batch.column(name))
        return _binary(batch.num_rows, *_id_kernel(positions, known, _bytes(prefix), _bytes(suffix)))

    def _json(self, batch: pa.RecordBatch) -> pa.Array:
        """As `to_json` writes it: what is null is left out."""
        fields = [self._id(batch, b'{"id":"', b'"'), self._field(batch, "key")]
        for side in ("probe", "build") if KINDS[self._format.type].pairs else ("probe",):
            fields += [self._field(batch, f"{side}_value"), _time_field(batch, f"{side}_time")]
        closing = pa.scalar(b"}", pa.binary())
        return pc.binary_join_element_wise(*fields, closing, b"")

    def _field(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        """`,"name":"text"` for each row, and nothing for null."""
        kind, column = self._format.kinds[name], batch.column(name)
        if kind == "literal":
            return _binary(len(column), *_wrap_kernel(*_buffers(column), _bytes(f',"{name}":'.encode())))
        offsets, data, known = _buffers(column)
        is_text = _is_text_kernel(offsets, data)
        if kind == "text" and not (is_text | ~known).all():
            texts = [value and value.decode("utf-8", "replace").encode() for value in column.to_pylist()]
            offsets, data, known = _buffers(pa.array(texts, pa.binary()))
            is_text = np.ones(len(column), np.bool_)
        prefix, prefix_of_base64 = _bytes(f',"{name}":"'.encode()), _bytes(f',"{name}_base64":"'.encode())
        return _binary(len(column), *_text_kernel(offsets, data, known, is_text, prefix, prefix_of_base64))


def value_columns(expression: str | None, type_: JoinType) -> tuple[str, ...] | None:
    """The columns that `output.value` puts together: none for the default JSON. None if it asks for more than that."""
    if expression is None:
        return ()
    found = _ONE.fullmatch(expression) or _CONCAT.fullmatch(expression)
    if found is None:
        return None
    names = tuple(name.strip().lower() for name in found[1].split(","))
    if "build_value" in names and not KINDS[type_].pairs:
        return None
    return names


def _time_field(batch: pa.RecordBatch, name: str) -> pa.Array:
    times, known = _numbers(batch.column(name))
    return _binary(batch.num_rows, *_time_kernel(times, known, _bytes(f',"{name}":"'.encode())))


def _bytes(text: bytes) -> Bytes:
    return np.frombuffer(text, np.uint8)


def _numbers(column: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    if not column.null_count:
        return np.asarray(column.to_numpy()).astype(np.int64, copy=False), np.ones(len(column), np.bool_)
    known = np.asarray(column.is_valid().to_numpy(zero_copy_only=False))
    return np.asarray(column.fill_null(0).to_numpy()).astype(np.int64, copy=False), known


def _buffers(column: pa.Array) -> tuple[Offsets, Bytes, NDArray[np.bool_]]:
    _, ends, data = column.buffers()
    offsets = np.frombuffer(ends, np.int32)[column.offset : column.offset + len(column) + 1]
    known = (
        np.asarray(column.is_valid().to_numpy(zero_copy_only=False))
        if column.null_count
        else np.ones(len(column), np.bool_)
    )
    return offsets, np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8), known


def _binary(rows: int, offsets: Offsets, data: Bytes) -> pa.Array:
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


@kernel
def _is_text_kernel(offsets: Offsets, data: Bytes) -> NDArray[np.bool_]:
    """Which values are UTF-8, by the letter of the standard: no overlong forms, no surrogates."""
    rows = len(offsets) - 1
    valid = np.ones(rows, np.bool_)
    for row in range(rows):
        at, end = offsets[row], offsets[row + 1]
        while at < end:
            first = data[at]
            if first < 0x80:
                at += 1
                continue
            low, high = 0x80, 0xBF
            if 0xC2 <= first <= 0xDF:
                more = 1
            elif 0xE0 <= first <= 0xEF:
                more = 2
                if first == 0xE0:
                    low = 0xA0
                elif first == 0xED:
                    high = 0x9F
            elif 0xF0 <= first <= 0xF4:
                more = 3
                if first == 0xF0:
                    low = 0x90
                elif first == 0xF4:
                    high = 0x8F
            else:
                more = -1
            if more < 0 or at + more >= end or not low <= data[at + 1] <= high:
                valid[row] = False
                break
            for next_ in range(2, more + 1):
                if not 0x80 <= data[at + next_] <= 0xBF:
                    valid[row] = False
            if not valid[row]:
                break
            at += more + 1
    return valid


_ESCAPED_LENGTH = np.ones(256, np.uint8)
_ESCAPED_LENGTH[:0x20] = 6
_SHORT = np.zeros(256, np.uint8)
for _character, _letter in ((0x22, '"'), (0x5C, "\\"), (8, "b"), (9, "t"), (10, "n"), (12, "f"), (13, "r")):
    _SHORT[_character] = ord(_letter)
    _ESCAPED_LENGTH[_character] = 2
_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_BASE64 = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_QUOTE, _BACKSLASH, _PADDING = 0x22, 0x5C, 0x3D


@kernel
def _text_kernel(
    offsets: Offsets,
    data: Bytes,
    known: NDArray[np.bool_],
    is_text: NDArray[np.bool_],
    prefix: Bytes,
    prefix_of_base64: Bytes,
) -> tuple[Offsets, Bytes]:
    """Prefix, escaped text, and a quote; base64 where it is no text."""
    rows = len(offsets) - 1
    ends = np.zeros(rows + 1, np.int32)
    total = 0
    for row in range(rows):
        if known[row]:
            if is_text[row]:
                total += len(prefix) + 1
                for at in range(offsets[row], offsets[row + 1]):
                    total += _ESCAPED_LENGTH[data[at]]
            else:
                total += len(prefix_of_base64) + 1 + (offsets[row + 1] - offsets[row] + 2) // 3 * 4
        ends[row + 1] = total
    out = np.empty(total, np.uint8)
    to = 0
    for row in range(rows):
        if not known[row]:
            continue
        if is_text[row]:
            out[to : to + len(prefix)] = prefix
            to += len(prefix)
            for at in range(offsets[row], offsets[row + 1]):
                byte = data[at]
                length = _ESCAPED_LENGTH[byte]
                if length == 1:
                    out[to] = byte
                else:
                    out[to] = _BACKSLASH
                    if length == 2:
                        out[to + 1] = _SHORT[byte]
                    else:
                        out[to + 1], out[to + 2], out[to + 3] = 0x75, 0x30, 0x30
                        out[to + 4], out[to + 5] = _HEX[byte >> 4], _HEX[byte & 15]
                to += length
        else:
            out[to : to + len(prefix_of_base64)] = prefix_of_base64
            to += len(prefix_of_base64)
            end = offsets[row + 1]
            for at in range(offsets[row], end, 3):
                left = end - at
                group = np.uint32(data[at]) << 16
                if left > 1:
                    group |= np.uint32(data[at + 1]) << 8
                if left > 2:
                    group |= np.uint32(data[at + 2])
                out[to] = _BASE64[group >> 18]
                out[to + 1] = _BASE64[group >> 12 & 63]
                out[to + 2] = _BASE64[group >> 6 & 63] if left > 1 else _PADDING
                out[to + 3] = _BASE64[group & 63] if left > 2 else _PADDING
                to += 4
        out[to] = _QUOTE
        to += 1
    return ends, out


@kernel
def _wrap_kernel(offsets: Offsets, data: Bytes, known: NDArray[np.bool_], prefix: Bytes) -> tuple[Offsets, Bytes]:
    rows = len(offsets) - 1
    ends = np.zeros(rows + 1, np.int32)
    for row in range(rows):
        length = len(prefix) + offsets[row + 1] - offsets[row] if known[row] else 0
        ends[row + 1] = ends[row] + length
    out = np.empty(ends[rows], np.uint8)
    for row in range(rows):
        if known[row]:
            to = ends[row]
            out[to : to + len(prefix)] = prefix
            out[to + len(prefix) : ends[row + 1]] = data[offsets[row] : offsets[row + 1]]
    return ends, out


@kernel
def _id_kernel(
    positions: NDArray[np.int64], known: NDArray[np.bool_], prefix: Bytes, suffix: Bytes
) -> tuple[Offsets, Bytes]:
    """Positions with dashes between them, and nothing for what is not known."""
    parts, rows = positions.shape
    ends = np.zeros(rows + 1, np.int32)
    out = np.empty(rows * (len(prefix) + len(suffix) + _POSITION_CHARACTERS), np.uint8)
    digits = np.empty(20, np.uint8)
    to = 0
    for row in range(rows):
        out[to : to + len(prefix)] = prefix
        to += len(prefix)
        for part in range(parts):
            if part:
                out[to] = 0x2D
                to += 1
            if known[part, row]:
                number = positions[part, row]
                count = 0
                while number or not count:
                    digits[count] = 0x30 + number % 10
                    number //= 10
                    count += 1
                for digit in range(count):
                    out[to] = digits[count - 1 - digit]
                    to += 1
        out[to : to + len(suffix)] = suffix
        to += len(suffix)
        ends[row + 1] = to
    return ends, out[:to]


@kernel
def _time_kernel(times: NDArray[np.int64], known: NDArray[np.bool_], prefix: Bytes) -> tuple[Offsets, Bytes]:
    """Microseconds since the epoch as UTC, to the millisecond. Dates by Howard Hinnant's `civil_from_days`."""
    rows = len(times)
    ends = np.zeros(rows + 1, np.int32)
    width = len(prefix) + _TIME_CHARACTERS + 1
    out = np.empty(rows * width, np.uint8)
    to = 0
    for row in range(rows):
        if known[row]:
            out[to : to + len(prefix)] = prefix
            to += len(prefix)
            ms = times[row] // 1000
            day, ms = ms // 86_400_000, ms % 86_400_000
            day += 719_468
            era = day // 146_097
            of_era = day - era * 146_097
            year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
            of_year = of_era - (365 * year + year // 4 - year // 100)
            month = (5 * of_year + 2) // 153
            of_month = of_year - (153 * month + 2) // 5 + 1
            month = month + 3 if month < 10 else month - 9
            year += era * 400 + (1 if month <= 2 else 0)
            to = _digits(out, to, year, 4, 0x2D)
            to = _digits(out, to, month, 2, 0x2D)
            to = _digits(out, to, of_month, 2, 0x54)
            to = _digits(out, to, ms // 3_600_000, 2, 0x3A)
            to = _digits(out, to, ms // 60_000 % 60, 2, 0x3A)
            to = _digits(out, to, ms // 1000 % 60, 2, 0x2E)
            to = _digits(out, to, ms % 1000, 3, 0x5A)
            out[to] = _QUOTE
            to += 1
        ends[row + 1] = to
    return ends, out[:to]


@kernel
def _digits(out: Bytes, to: int, number: int, count: int, then: int) -> int:
    for at in range(count):
        out[to + count - 1 - at] = 0x30 + number % 10
        number //= 10
    out[to + count] = then
    return to + count + 1
