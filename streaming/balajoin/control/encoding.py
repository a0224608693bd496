"""The records of the control and the replica topic: signals and shipments, versioned, checked, and never code.

A record counts only for the join that wrote it, and only in a later batch. Nodes ignore records of another checkpoint,
and of a time line that ended when an older copy of the checkpoint was restored. If a batch was begun under one plan and
finished under another, only records of the second plan count.
"""

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from balajoin.core.blocks import LATEST_US, concat, decode, encode, pieces
from balajoin.core.messages import (
    ForeignRecordError,
    Grant,
    Part,
    Report,
    Shipment,
    Signal,
    Stamp,
    Tick,
    check_times,
    shown_key,
)
from balajoin.errors import BlockError
from balajoin.kafka.producer import Record

VERSION = 2
_WITHOUT_PLAN = 1
"""The version whose records do not name the plan."""

HEADER = "balajoin"
"""The Kafka header that describes a shipment, in JSON: `kcat -f '%h'` shows it."""

# Kafka's brokers take records up to a megabyte by default. Compression then makes the rows smaller still.
_MAX_PART_BYTES = 768 << 10
_MET = "met"


def signal_record(stamp: Stamp, home: int, signal: Signal) -> Record:
    content = {
        **_stamped(stamp),
        "home": home,
        "node": signal.node,
        "hash": signal.hash,
        "until": signal.until,
        "fragment": signal.fragment,
        "again": signal.again,
        "since": signal.since,
        "key": shown_key(signal.key),
    }
    return Record(str(home).encode(), _json(content), ())


def read_control(text: str | None) -> tuple[Stamp, Signal | Tick]:
    """Reads a record of the control topic."""
    content = _object(text)
    return _stamp(content), _tick(content) if "tick_ms" in content else _signal(content)


def read_signal(text: str | None) -> tuple[Stamp, Signal]:
    content = _object(text)
    return _stamp(content), _signal(content)


def _signal(content: dict[str, Any]) -> Signal:
    return Signal(
        _of(content, "hash", int),
        _of(content, "node", int),
        _of(content, "until", int),
        _of(content, "fragment", bool),
        _of(content, "again", bool),
        _of(content, "since", int),
        _text(content, "key").encode(),
    )


def shipment_records(stamp: Stamp, shipment: Shipment) -> Iterator[Record]:
    blocks = [encode(piece) for piece in pieces(shipment.rows, _MAX_PART_BYTES)] or [b""]
    attempt = uuid4().hex
    for part, block in enumerate(blocks):
        content = {
            **_stamped(stamp),
            "home": shipment.home,
            "node": shipment.node,
            "attempt": attempt,
            "part": part,
            "parts": len(blocks),
            "grants": [] if part else [[g.hash, g.until, g.fragment] for g in shipment.grants],
            "pulled": [] if part else list(shipment.pulled),
        }
        yield Record(str(shipment.node).encode(), block, [(HEADER, _json(content))])


def read_replica(header: str | None, block: bytes | None) -> tuple[Stamp, Part | Report]:
    """Reads a record of the replica topic."""
    content = _object(header)
    return _stamp(content), _report(content, block) if content.get("kind") == _MET else _part(content, block)


def _part(content: dict[str, Any], block: bytes | None) -> Part:
    grants = [_checked_grant(entry) for entry in _of(content, "grants", list)]
    pulled = _of(content, "pulled", list)
    if not all(map(_fits, pulled)):
        raise ForeignRecordError("pulled are hashes")
    return Part(
        _stamp(content),
        _of(content, "home", int),
        _of(content, "node", int),
        _of(content, "attempt", str),
        _of(content, "part", int),
        _of(content, "parts", int),
        tuple(grants),
        tuple(pulled),
        block or b"",
    )


def report_records(stamp: Stamp, report: Report) -> Iterator[Record]:
    for piece in pieces(report.rows, _MAX_PART_BYTES):
        content = {
            **_stamped(stamp),
            "kind": _MET,
            "guest": report.guest,
            "node": report.home,
        }
        yield Record(str(report.home).encode(), encode(piece), [(HEADER, _json(content))])


def _report(content: dict[str, Any], block: bytes | None) -> Report:
    try:
        rows = [concat([decode(block or b"")])]
    except BlockError as error:
        raise ForeignRecordError(str(error)) from None
    check_times(rows)
    return Report(_of(content, "guest", int), _of(content, "node", int), rows)


def tick_record(stamp: Stamp, now_ms: int) -> Record:
    """Tells all nodes that no records have come, and the time."""
    return Record(None, _json({**_stamped(stamp), "tick_ms": now_ms}), ())


def wake_up_record() -> Record:
    """A tick of no join: it makes Spark run a batch, and nodes skip the tick itself."""
    return tick_record(Stamp("", 0), 0)


def _tick(content: dict[str, Any]) -> Tick:
    tick_ms = _of(content, "tick_ms", int)
    if not 0 <= tick_ms <= LATEST_US // 1000:
        raise ForeignRecordError("a time that no clock shows")
    return Tick(tick_ms)


def _checked_grant(entry: Any) -> Grant:
    if not isinstance(entry, list) or len(entry) != 3 or not all(map(_fits, entry[:2])) or type(entry[2]) is not bool:
        raise ForeignRecordError("a grant is hash, until and fragment")
    return Grant(*entry)


def _json(content: dict[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def _object(text: str | None) -> dict[str, Any]:
    try:
        content = json.loads(text or "")
    except (ValueError, RecursionError):
        raise ForeignRecordError("not JSON") from None
    if not isinstance(content, dict):
        raise ForeignRecordError("not an object")
    version = content.get("version")
    if type(version) is not int or version not in (_WITHOUT_PLAN, VERSION):
        raise ForeignRecordError(f"version {repr(version)[:20]}, not {VERSION}")
    return content


def _stamped(stamp: Stamp) -> dict[str, Any]:
    return {"version": VERSION, "join": stamp.join, "batch": stamp.batch, "plan": stamp.plan}


def _stamp(content: dict[str, Any]) -> Stamp:
    plan = "" if content["version"] == _WITHOUT_PLAN else _of(content, "plan", str)
    stamp = Stamp(_of(content, "join", str), _of(content, "batch", int), plan)
    if stamp.batch < 0:
        raise ForeignRecordError("a batch before the first")
    return stamp


def _text(content: dict[str, Any], name: str) -> str:
    text: str = _of(content, name, str)
    if any("\ud800" <= character <= "\udfff" for character in text):  # JSON can hold surrogates, UTF-8 cannot
        raise ForeignRecordError(f"{name} is not text")
    return text


def _of(content: dict[str, Any], name: str, kind: type) -> Any:
    value = content.get(name)
    if type(value) is not kind:  # a boolean is an int to isinstance
        raise ForeignRecordError(f"{name} is not {kind.__name__}")
    if kind is int and not _fits(value):
        raise ForeignRecordError(f"{name} has more than 64 bits")
    return value


def _fits(value: Any) -> bool:
    return type(value) is int and -(1 << 63) <= value < 1 << 63
