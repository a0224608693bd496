"""What travels on the control and the replica topic: signals and shipments, versioned, checked, and never code.

A record counts only for the join that wrote it, and only in a later batch: what another checkpoint left on the topics,
or a time line that was given up when an older copy of the checkpoint was restored, is nobody's. Where a batch was
begun under one plan and finished under another, only what the second one wrote counts.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pyarrow as pa

from balajoin.core.blocks import EARLIEST_US, LATEST_US, concat, decode, encode, longs, pieces
from balajoin.errors import BlockError
from balajoin.kafka.producer import Record

VERSION = 2
_WITHOUT_PLAN = 1
"""The version whose records do not name the plan."""

ANY_PLAN = "*"
"""Of records that say the same under every plan: the driver's."""

HEADER = "balajoin"
"""A shipment's own header, in JSON: `kcat -f '%h'` shows it."""

# Kafka's brokers take a megabyte by default; the block's rows are compressed on top.
_MAX_PART_BYTES = 768 << 10
_SHOWN_KEY_BYTES = 64
_MET = "met"


Lease = tuple[int, int, bool]
"""What a signal asks for, and a home grants: hash, node, and whether only a fragment's share of the build rows."""


class ForeignRecordError(ValueError):
    """A record that this join did not write, or that was changed since."""


@dataclass(frozen=True)
class Stamp:
    """Who wrote a record: `join` is Spark's id of the query, which a checkpoint keeps for life, and when.

    `plan` is drawn anew by each `balajoin.join`. All attempts at a batch under one plan have the same settings and
    code, and so the same rows on the same nodes. Attempts under two plans may differ in everything.
    """

    join: str
    batch: int
    plan: str = ""

    def may_precede(self, now: "Stamp") -> bool:
        """Whether a record of this stamp may count in the batch of another one."""
        return self.join == now.join and self.batch < now.batch

    @property
    def content(self) -> dict[str, Any]:
        return {"version": VERSION, "join": self.join, "batch": self.batch, "plan": self.plan}


@dataclass(frozen=True)
class Signal:
    """To a key's home: `node` gets its probe rows with times up to `until`, and needs its build rows.

    `again`: all that match probe rows from `since` on, even if they were sent before. `key` is one with that hash, for
    people who read the topic.
    """

    hash: int
    node: int
    until: int
    fragment: bool = False
    again: bool = False
    since: int = 0
    key: bytes = b""


@dataclass(frozen=True)
class Grant:
    """The home's promise: whatever build row of this hash reaches it is forwarded, for probe rows up to `until`."""

    hash: int
    until: int
    fragment: bool = False


@dataclass(frozen=True)
class Shipment:
    """From a key's home to a node, all that a batch has for it. Rows of `pulled` hashes may be there already."""

    home: int
    node: int
    rows: Sequence[pa.Table] = ()
    grants: Sequence[Grant] = ()
    pulled: Sequence[int] = ()


@dataclass(frozen=True)
class Report:
    """From a guest to a home: build rows of it, without key and value, that have met a match. It may come twice."""

    guest: int
    home: int
    rows: Sequence[pa.Table]


@dataclass(frozen=True)
class Part:
    """One record of a shipment. A task that is tried again ships again, under another `attempt`."""

    stamp: Stamp
    home: int
    node: int
    attempt: str
    part: int
    parts: int
    grants: tuple[Grant, ...]
    pulled: tuple[int, ...]
    block: bytes


def shown_key(key: bytes) -> str:
    """For people: as much of it as tells which one it is."""
    return key[:_SHOWN_KEY_BYTES].decode("utf-8", "backslashreplace")


def signal_record(stamp: Stamp, home: int, signal: Signal) -> Record:
    content = {
        **stamp.content,
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


def read_signal(text: str | None) -> tuple[Stamp, Signal]:
    content = _object(text)
    stamp = _stamp(content)
    signal = Signal(
        _of(content, "hash", int),
        _of(content, "node", int),
        _of(content, "until", int),
        _of(content, "fragment", bool),
        _of(content, "again", bool),
        _of(content, "since", int),
        _text(content, "key").encode(),
    )
    return stamp, signal


def shipment_records(stamp: Stamp, shipment: Shipment) -> Iterator[Record]:
    blocks = [encode(piece, "lz4") for piece in pieces(shipment.rows, _MAX_PART_BYTES)] or [b""]
    attempt = uuid4().hex
    for part, block in enumerate(blocks):
        content = {
            **stamp.content,
            "home": shipment.home,
            "node": shipment.node,
            "attempt": attempt,
            "part": part,
            "parts": len(blocks),
            "grants": [] if part else [[g.hash, g.until, g.fragment] for g in shipment.grants],
            "pulled": [] if part else list(shipment.pulled),
        }
        yield Record(str(shipment.node).encode(), block, [(HEADER, _json(content))])


def read_part(header: str | None, block: bytes | None) -> Part:
    content = _object(header)
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
            **stamp.content,
            "kind": _MET,
            "guest": report.guest,
            "node": report.home,
        }
        yield Record(str(report.home).encode(), encode(piece, "lz4"), [(HEADER, _json(content))])


def read_report(header: str | None, block: bytes | None) -> tuple[Stamp, Report]:
    content = _object(header)
    try:
        rows = [concat([decode(block or b"")])]
    except BlockError as error:
        raise ForeignRecordError(str(error)) from None
    check_times(rows)
    return _stamp(content), Report(_of(content, "guest", int), _of(content, "node", int), rows)


def check_times(tables: Sequence[pa.Table]) -> None:
    for rows in tables:
        times = longs(rows, "time")
        if len(times) and not EARLIEST_US <= times.min() <= times.max() <= LATEST_US:
            raise ForeignRecordError("times that no edge lets in")


def is_report(header: str | None) -> bool:
    return _object(header).get("kind") == _MET


def tick_record(stamp: Stamp, now_ms: int) -> Record:
    """To all nodes: nothing has happened, and time goes on."""
    return Record(None, _json({**stamp.content, "tick_ms": now_ms}), ())


def wake_up_record() -> Record:
    """Nobody's tick: a node that reads it does what it has to do anyway, and skips it."""
    return tick_record(Stamp("", 0), 0)


def read_tick(text: str | None) -> tuple[Stamp, int]:
    content = _object(text)
    tick_ms = _of(content, "tick_ms", int)
    if not 0 <= tick_ms <= LATEST_US // 1000:
        raise ForeignRecordError("a time that no clock shows")
    return _stamp(content), tick_ms


def is_tick(text: str | None) -> bool:
    return "tick_ms" in _object(text)


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


def _stamp(content: dict[str, Any]) -> Stamp:
    plan = "" if content["version"] == _WITHOUT_PLAN else _of(content, "plan", str)
    stamp = Stamp(_of(content, "join", str), _of(content, "batch", int), plan)
    if stamp.batch < 0:
        raise ForeignRecordError("a batch before the first")
    return stamp


def _text(content: dict[str, Any], name: str) -> str:
    text: str = _of(content, name, str)
    if any("\ud800" <= character <= "\udfff" for character in text):  # JSON can write them, nothing else can
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
