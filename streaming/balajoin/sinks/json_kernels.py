"""Kernels that write results as JSON objects, and their ids, byte for byte as Spark's `to_json` does."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from balajoin.core.kernels import kernel

Bytes = NDArray[np.uint8]
Offsets = NDArray[np.int32]
Flags = NDArray[np.bool_]
Place = np.uint64


class TextColumn(NamedTuple):
    """A binary column, and how JSON shows its values: as text; in base64 if the bytes are no text; or as they are."""

    offsets: Offsets
    data: Bytes
    known: Flags
    """False where the value is null."""
    is_text: Flags
    is_literal: bool


def is_text(offsets: Offsets, data: Bytes) -> Flags:
    """Which values are UTF-8, strictly by the standard: no overlong forms, no surrogates."""
    return _is_text_kernel(offsets, data)


def objects(
    positions: NDArray[np.int64],
    positions_known: Flags,
    key: TextColumn,
    probe_value: TextColumn,
    build_value: TextColumn,
    times: NDArray[np.int64],
    times_known: Flags,
) -> tuple[Offsets, Bytes]:
    """Offsets and bytes of one JSON object for each row. `times` are of probe rows, then of build rows."""
    return _objects_kernel(positions, positions_known, *key, *probe_value, *build_value, times, times_known)


def ids(positions: NDArray[np.int64], known: Flags) -> tuple[Offsets, Bytes]:
    """Positions with dashes between them; an unknown position is left empty."""
    return _ids_kernel(positions, known)


def _bytes(text: bytes) -> Bytes:
    return np.frombuffer(text, np.uint8).copy()


_ESCAPED_LENGTH = np.ones(256, np.uint8)
_ESCAPED_LENGTH[:0x20] = 6
_SHORT = np.zeros(256, np.uint8)
for _character, _letter in ((0x22, '"'), (0x5C, "\\"), (8, "b"), (9, "t"), (10, "n"), (12, "f"), (13, "r")):
    _SHORT[_character] = ord(_letter)
    _ESCAPED_LENGTH[_character] = 2
_CONTROL = _bytes(b"u00")
_HEX = _bytes(b"0123456789ABCDEF")
_BASE64 = _bytes(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
_1, _10, _TEN = np.uint64(1), np.uint64(10), np.uint32(10)
_QUOTE, _BACKSLASH, _PADDING, _DASH, _CLOSE = 0x22, 0x5C, 0x3D, 0x2D, 0x7D
_ID_CHARACTERS = 64  # two partitions of 11 characters, two offsets of 20, and the dashes
_TIME_CHARACTERS = 24  # 2026-11-18T12:34:56.789Z
_ID, _KEY, _KEY_64 = _bytes(b'{"id":"'), _bytes(b',"key":'), _bytes(b',"key_base64":"')
_PROBE, _PROBE_64 = _bytes(b',"probe_value":'), _bytes(b',"probe_value_base64":"')
_BUILD, _BUILD_64 = _bytes(b',"build_value":'), _bytes(b',"build_value_base64":"')
_PROBE_TIME, _BUILD_TIME = _bytes(b',"probe_time":"'), _bytes(b',"build_time":"')
_ROW_CHARACTERS = (
    len(_ID) + _ID_CHARACTERS + 2 + len(_KEY_64) + len(_PROBE_64) + len(_BUILD_64) + 6
    + len(_PROBE_TIME) + len(_BUILD_TIME) + 2 * (_TIME_CHARACTERS + 1)
)  # fmt: skip


@kernel
def _is_text_kernel(offsets: Offsets, data: Bytes) -> Flags:
    rows = len(offsets) - 1
    valid = np.ones(rows, np.bool_)
    beyond_ascii = np.uint8(0)
    for at in range(offsets[0], offsets[rows]):  # LLVM makes vector code of this loop
        beyond_ascii |= data[at] & np.uint8(0x80)
    if not beyond_ascii:
        return valid
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


@kernel
def _longest(offsets: Offsets, data: Bytes) -> int:
    """The most bytes that the column's values can take, escaped or in base64, without names and quotes."""
    first, last = offsets[0], offsets[len(offsets) - 1]
    longer = 0
    for at in range(first, last):  # likewise vector code
        byte = data[at]
        longer += (byte == _QUOTE) + (byte == _BACKSLASH) + 5 * (byte < 0x20)
    return int(max(last - first + longer, (last - first) * 4 // 3 + 4 * len(offsets)))


@kernel
def _objects_kernel(
    positions: NDArray[np.int64],
    positions_known: Flags,
    key_offsets: Offsets,
    key_data: Bytes,
    key_known: Flags,
    key_is_text: Flags,
    key_is_literal: bool,
    probe_offsets: Offsets,
    probe_data: Bytes,
    probe_known: Flags,
    probe_is_text: Flags,
    probe_is_literal: bool,
    build_offsets: Offsets,
    build_data: Bytes,
    build_known: Flags,
    build_is_text: Flags,
    build_is_literal: bool,
    times: NDArray[np.int64],
    times_known: Flags,
) -> tuple[Offsets, Bytes]:
    rows = positions.shape[1]
    ends = np.zeros(rows + 1, np.int32)
    texts = _longest(key_offsets, key_data) + _longest(probe_offsets, probe_data) + _longest(build_offsets, build_data)
    out = np.empty(rows * _ROW_CHARACTERS + texts, np.uint8)
    digits = np.empty(20, np.uint8)
    to = np.uint64(0)
    for row in range(rows):
        to = _copy(out, to, _ID)
        to = _write_id(out, to, positions, positions_known, row, digits)
        out[to] = _QUOTE
        to += _1
        if key_known[row]:
            value = key_data[key_offsets[row] : key_offsets[row + 1]]
            to = _write_field(out, to, value, key_is_text[row], key_is_literal, _KEY, _KEY_64)
        if probe_known[row]:
            value = probe_data[probe_offsets[row] : probe_offsets[row + 1]]
            to = _write_field(out, to, value, probe_is_text[row], probe_is_literal, _PROBE, _PROBE_64)
        if times_known[0, row]:
            to = _write_time(out, to, times[0, row], _PROBE_TIME)
        if build_known[row]:
            value = build_data[build_offsets[row] : build_offsets[row + 1]]
            to = _write_field(out, to, value, build_is_text[row], build_is_literal, _BUILD, _BUILD_64)
        if times_known[1, row]:
            to = _write_time(out, to, times[1, row], _BUILD_TIME)
        out[to] = _CLOSE
        to += _1
        ends[row + 1] = to
    return ends, out[:to]


@kernel
def _ids_kernel(positions: NDArray[np.int64], known: Flags) -> tuple[Offsets, Bytes]:
    rows = positions.shape[1]
    ends = np.zeros(rows + 1, np.int32)
    out = np.empty(rows * _ID_CHARACTERS, np.uint8)
    digits = np.empty(20, np.uint8)
    to = np.uint64(0)
    for row in range(rows):
        to = _write_id(out, to, positions, known, row, digits)
        ends[row + 1] = to
    return ends, out[:to]


# Below, `to` is unsigned: numba checks each time whether a signed index counts from the end, which doubles the time.


@kernel
def _copy(out: Bytes, to: Place, data: Bytes) -> Place:
    for at in range(np.uint64(len(data))):
        out[to + at] = data[at]
    return to + np.uint64(len(data))


@kernel
def _write_id(out: Bytes, to: Place, positions: NDArray[np.int64], known: Flags, row: int, digits: Bytes) -> Place:
    for part in range(len(positions)):
        if part:
            out[to] = _DASH
            to += _1
        if known[part, row]:
            number = np.uint64(positions[part, row])
            count = 0
            while number or not count:
                digits[count] = 0x30 + number % _10
                number //= _10
                count += 1
            for digit in range(count - 1, -1, -1):
                out[to] = digits[digit]
                to += _1
    return to


@kernel
def _write_field(
    out: Bytes, to: Place, value: Bytes, is_text: bool, is_literal: bool, prefix: Bytes, prefix_of_base64: Bytes
) -> Place:
    """Writes a comma, the field's name and its value."""
    if is_literal:
        return _copy(out, _copy(out, to, prefix), value)
    if is_text:
        to = _copy(out, to, prefix)
        out[to] = _QUOTE
        to = _write_escaped(out, to + _1, value)
    else:
        to = _write_base64(out, _copy(out, to, prefix_of_base64), value)
    out[to] = _QUOTE
    return to + _1


@kernel
def _write_escaped(out: Bytes, to: Place, value: Bytes) -> Place:
    for at in range(np.uint64(len(value))):
        byte = value[at]
        length = _ESCAPED_LENGTH[byte]
        if length == 1:
            out[to] = byte
            to += _1
            continue
        out[to] = _BACKSLASH
        if length == 2:
            out[to + _1] = _SHORT[byte]
        else:
            to = _copy(out, to + _1, _CONTROL)
            out[to], out[to + _1] = _HEX[byte >> 4], _HEX[byte & 15]
            to -= np.uint64(4)
        to += np.uint64(length)
    return to


@kernel
def _write_base64(out: Bytes, to: Place, value: Bytes) -> Place:
    for at in range(0, len(value), 3):
        left = len(value) - at
        group = np.uint32(value[at]) << 16
        if left > 1:
            group |= np.uint32(value[at + 1]) << 8
        if left > 2:
            group |= np.uint32(value[at + 2])
        out[to] = _BASE64[group >> 18]
        out[to + _1] = _BASE64[group >> 12 & 63]
        out[to + np.uint64(2)] = _BASE64[group >> 6 & 63] if left > 1 else _PADDING
        out[to + np.uint64(3)] = _BASE64[group & 63] if left > 2 else _PADDING
        to += np.uint64(4)
    return to


@kernel
def _write_time(out: Bytes, to: Place, time: int, prefix: Bytes) -> Place:
    """Writes microseconds since the epoch as UTC, to the millisecond. Dates by Howard Hinnant's `civil_from_days`."""
    to = _copy(out, to, prefix)
    ms = time // 1000
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
    to = _write_digits(out, to, year, 4, 0x2D)
    to = _write_digits(out, to, month, 2, 0x2D)
    to = _write_digits(out, to, of_month, 2, 0x54)
    to = _write_digits(out, to, ms // 3_600_000, 2, 0x3A)
    to = _write_digits(out, to, ms // 60_000 % 60, 2, 0x3A)
    to = _write_digits(out, to, ms // 1000 % 60, 2, 0x2E)
    to = _write_digits(out, to, ms % 1000, 3, 0x5A)
    out[to] = _QUOTE
    return to + _1


@kernel
def _write_digits(out: Bytes, to: Place, number: int, count: int, then: int) -> Place:
    rest = np.uint32(number)
    for at in range(count):
        out[to + np.uint64(count - 1 - at)] = 0x30 + rest % _TEN
        rest //= _TEN
    out[to + np.uint64(count)] = then
    return to + np.uint64(count + 1)
