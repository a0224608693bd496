"""Writes small state: a magic number, a kind, a version and a checksum around JSON. Nothing read here can run code.

The content may also hold arrays and bytes, at any depth of its dicts. They follow the JSON as raw bytes:

    magic, CRC-32 of the rest, JSON                       without arrays
    magic, CRC-32 of the rest, JSON, newline, raw bytes   with; the JSON lists where each belongs, its type and shape
"""

import json
import math
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balajoin.errors import BlockError, StateError

_MAGIC = b"bala"
_PLAIN_KINDS = "biuf"
_PLAIN_FORM = re.compile(rf"[<|][{_PLAIN_KINDS}][1248]")
_BYTES = "bytes"

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
"""Turns the content of one version into that of the next."""


def encode(kind: str, version: int, content: dict[str, Any]) -> bytes:
    raw: list[tuple[list[str], NDArray[Any] | bytes]] = []
    head = {"kind": kind, "version": version, "content": _without_raw(content, [], raw)}
    if raw:
        head["raw"] = [[path, *_form(value)] for path, value in raw]
    parts = [json.dumps(head, separators=(",", ":")).encode()]
    if raw:
        parts += [b"\n", *(value if isinstance(value, bytes) else value.tobytes() for _, value in raw)]
    body = b"".join(parts)
    return _MAGIC + zlib.crc32(body).to_bytes(4, "big") + body


def decode(kind: str, version: int, data: bytes, upgrades: Mapping[int, Upgrade] | None = None) -> dict[str, Any]:
    """The content in the form of this version. Raises if `data` is damaged or of another kind. Arrays are writable.

    Content of an older version goes through the step of `upgrades` for that version, and through all later steps.
    """
    if len(data) <= 8 or data[:4] != _MAGIC or zlib.crc32(data[8:]) != int.from_bytes(data[4:8], "big"):
        raise _damaged(kind)
    with refusing_damage(kind):
        text, _, raw = data[8:].partition(b"\n")
        written = json.loads(text)
        found_kind, found_version = written["kind"], written["version"]
        content: dict[str, Any] = written["content"]
    if found_kind != kind:
        raise StateError(f"found {found_kind} state instead of {kind} state: is this checkpoint another join's?")
    with refusing_damage(kind):
        steps = _steps(kind, integer(found_version), version, upgrades or {})
        if type(content) is not dict:
            raise TypeError("the content is a table")
        _put_back(content, written.get("raw", []), raw)
        for step in steps:
            content = step(content)
        return content


@contextmanager
def refusing_damage(kind: str) -> Iterator[None]:
    """Wraps code that takes state apart: anything that is missing or has a wrong type makes the state damaged."""
    try:
        yield
    except (BlockError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as cause:
        raise _damaged(kind) from cause


def integer(value: Any) -> int:
    """A number from state, of 64 bits at most."""
    if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
        raise TypeError("not a whole number")
    return value


def integer_or_none(value: Any) -> int | None:
    return None if value is None else integer(value)


def _damaged(kind: str) -> StateError:
    return StateError(f"the {kind} state is damaged: restore the checkpoint from a copy, or start with a new one")


def _steps(kind: str, written: int, version: int, upgrades: Mapping[int, Upgrade]) -> list[Upgrade]:
    oldest = version
    while oldest - 1 in upgrades:
        oldest -= 1
    if not oldest <= written <= version:
        known = f"version {version}" if oldest == version else f"versions {oldest} to {version}"
        raise StateError(
            f"the {kind} state has version {written}, this balajoin reads {known}: "
            "run the balajoin that wrote it, or start with a new checkpoint"
        )
    return [upgrades[at] for at in range(written, version)]


def _without_raw(value: Any, path: list[str], raw: list[tuple[list[str], NDArray[Any] | bytes]]) -> Any:
    if isinstance(value, dict):
        return {name: _without_raw(inner, [*path, name], raw) for name, inner in value.items()}
    if isinstance(value, np.ndarray):
        raw.append((path, value.astype(value.dtype.newbyteorder("<"), copy=False)))
    elif isinstance(value, bytes):
        raw.append((path, value))
    else:
        return value
    return None


def _form(value: NDArray[Any] | bytes) -> tuple[str, list[int]]:
    if isinstance(value, bytes):
        return _BYTES, [len(value)]
    if value.dtype.kind not in _PLAIN_KINDS:
        raise TypeError(f"state holds plain numbers, not arrays of {value.dtype}")
    return value.dtype.str, list(value.shape)


def _put_back(content: dict[str, Any], forms: list[tuple[list[str], str, list[int]]], raw: bytes) -> None:
    start = 0
    for path, form, shape in forms:
        item = np.dtype(np.uint8) if form == _BYTES else _plain(form)
        if not all(type(length) is int and length >= 0 for length in shape):
            raise ValueError("a shape is lengths")
        end = start + item.itemsize * math.prod(shape)
        piece = raw[start:end]
        place = content
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = piece if form == _BYTES else np.frombuffer(piece, item).reshape(shape).copy()
        start = end
    if start != len(raw):
        raise ValueError("more or fewer bytes than the arrays have")


def _plain(form: str) -> np.dtype[Any]:
    if not _PLAIN_FORM.fullmatch(form):
        raise ValueError("not an array of numbers")
    return np.dtype(form)
