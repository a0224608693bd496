"""A node's state except its rows, as one type: how it is read, upgraded, checked and written.

Reading refuses values of a wrong type, so code that gets a `NodeState` need not check them again.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from balajoin.core import codec
from balajoin.core.codec import integer, integer_or_none
from balajoin.core.event_time import BEGINNING, Past, SourceProgress, WatermarkState
from balajoin.core.messages import Lease
from balajoin.core.sides import SIDES, Side

HEAD = -1
"""The number under which the state store holds a node's `NodeState`; blocks of rows have other numbers."""

_VERSION = 4
_NAME = re.compile(r"[0-9a-f]{32}")

GuestKey = tuple[int, bool]
"""A key at a node that is not its home: its hash, and whether it means only a fragment's share of the build rows."""


@dataclass(frozen=True)
class Uncovered:
    """Probe rows of one key at a guest that no grant covers yet: their build rows may still be on their way."""

    earliest: int
    latest: int
    asked: int
    """The batch of the last signal for these rows."""

    since: int
    """The batch of the first of these rows."""


@dataclass(frozen=True, order=True)
class LastBatch:
    batch: int
    first_number: int
    """The number of the first block that this batch stored."""


@dataclass(frozen=True)
class NodeState:
    pins: Mapping[str, Any]
    """The pinned settings: those that stored rows depend on."""

    lineage: str
    """Names the node's local folder."""
    seal: str
    """Names exactly this state: a repeat of the batch, or a copy of the checkpoint, has another seal."""

    watermarks: Mapping[Side, WatermarkState] = field(
        default_factory=lambda: {side: WatermarkState(BEGINNING, {}) for side in SIDES}
    )
    clock_ms: int = 0
    batch_ms: int | None = None
    next_number: int = 0
    last: LastBatch | None = LastBatch(-1, 0)
    """None in a state that an older balajoin wrote, which did not record it."""
    owed: int = 0
    """The number of blocks of results to emit in the next batch."""

    leases: Mapping[Lease, int] = field(default_factory=dict)
    held: Mapping[GuestKey, int] = field(default_factory=dict)
    uncovered: Mapping[GuestKey, Uncovered] = field(default_factory=dict)
    channels: Mapping[int, int] = field(default_factory=dict)
    probe_watermarks: Sequence[tuple[int, int]] = ()
    """The batches in which the probe watermark moved, and its new value."""
    plans: Sequence[tuple[int, str]] = ()
    """The batches in which the plan changed, and the new plan."""

    build_kept_from: int = BEGINNING
    """The node still has all build rows that a probe row from this time on can match."""
    decided: Mapping[Side, int] = field(default_factory=dict)
    """By side, the time before which all unmatched rows are decided."""
    overdue: Sequence[tuple[int, int]] = ()
    """Blocks of build rows that are laid aside: the batch in which they came, and the block's number."""

    @classmethod
    def first(cls, pins: Mapping[str, Any]) -> "NodeState":
        """The state before the first batch."""
        name = new_name()
        return cls(pins, lineage=name, seal=name)

    @classmethod
    def read(cls, written: bytes) -> "NodeState":
        content = codec.decode("node", _VERSION, written, _UPGRADES)
        with codec.refusing_damage("node"):
            return _checked(content)

    def write(self) -> bytes:
        last = None if self.last is None else [self.last.batch, self.last.first_number]
        content = {
            "pins": self.pins,
            "lineage": self.lineage,
            "seal": self.seal,
            "clock": [self.clock_ms, self.batch_ms],
            "next_number": self.next_number,
            "last": last,
            "owed": self.owed,
            "watermarks": {side: _written_watermark(mark) for side, mark in self.watermarks.items()},
            "leases": [[*lease, until] for lease, until in sorted(self.leases.items())],
            "guest": {
                "held": [[*key, until] for key, until in sorted(self.held.items())],
                "pins": [[*key, *_written_uncovered(self.uncovered[key])] for key in sorted(self.uncovered)],
                "channels": sorted(self.channels.items()),
            },
            "past": self.probe_watermarks,
            "plans": self.plans,
            "build_kept_from": self.build_kept_from,
            "decided": self.decided,
            "overdue": self.overdue,
        }
        return codec.encode("node", _VERSION, content)


def new_name() -> str:
    """A new lineage or seal."""
    return uuid4().hex


# --- reading: every part is checked -----------------------------------------------------------------------------------


def _checked(content: dict[str, Any]) -> NodeState:
    guest = content["guest"]
    clock_ms, batch_ms = content["clock"]
    return NodeState(
        pins=_table(content["pins"]),
        lineage=_name(content["lineage"]),
        seal=_name(content["seal"]),
        watermarks={side: _watermark(content["watermarks"][side]) for side in SIDES},
        clock_ms=integer(clock_ms),
        batch_ms=integer_or_none(batch_ms),
        next_number=integer(content["next_number"]),
        last=None if content["last"] is None else LastBatch(*_two(content["last"])),
        owed=integer(content["owed"]),
        leases={(integer(h), integer(node), bool(part)): integer(until) for h, node, part, until in content["leases"]},
        held={_guest_key(hash_, part): integer(until) for hash_, part, until in guest["held"]},
        uncovered={_guest_key(hash_, part): _uncovered(*rows) for hash_, part, *rows in guest["pins"]},
        channels=dict(map(_two, guest["channels"])),
        probe_watermarks=[_two(entry) for entry in content["past"]],
        plans=[(integer(at), str(plan)) for at, plan in content["plans"]],
        build_kept_from=integer(content["build_kept_from"]),
        decided={side: integer(content["decided"][side]) for side in SIDES if side in _table(content["decided"])},
        overdue=[_two(entry) for entry in content["overdue"]],
    )


def _table(value: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise TypeError("not a table")
    return value


def _name(value: Any) -> str:
    """Checks the name of a folder or a file: its content may be deleted, so the name must not lead elsewhere."""
    if not _NAME.fullmatch(value):
        raise ValueError("not a name that a node gives")
    return str(value)


def _two(value: Any) -> tuple[int, int]:
    one, other = value
    return integer(one), integer(other)


def _watermark(value: Any) -> WatermarkState:
    sources = {integer(source): SourceProgress(*_two(progress)) for source, *progress in value["sources"]}
    return WatermarkState(integer(value["current"]), sources)


def _written_watermark(mark: WatermarkState) -> dict[str, Any]:
    sources = sorted(mark.sources.items())
    return {
        "current": mark.current,
        "sources": [[source, progress.watermark, progress.active_ms] for source, progress in sources],
    }


def _guest_key(hash_: Any, fragment: Any) -> GuestKey:
    return integer(hash_), bool(fragment)


def _uncovered(earliest: Any, latest: Any, asked: Any, since: Any = None) -> Uncovered:
    """Earlier states of the same format have no `since`."""
    asked = integer(asked)
    return Uncovered(integer(earliest), integer(latest), asked, asked if since is None else integer(since))


def _written_uncovered(rows: Uncovered) -> list[int]:
    return [rows.earliest, rows.latest, rows.asked, rows.since]


# --- older layouts ----------------------------------------------------------------------------------------------------


def _from_2(content: dict[str, Any]) -> dict[str, Any]:
    """All joins were inner joins, and the state did not record the last batch."""
    pins = {"join.type": "inner", **content["pins"]}
    return {**content, "pins": pins, "decided": {}, "overdue": [], "last": None, "owed": 0}


def _from_3(content: dict[str, Any]) -> dict[str, Any]:
    """Records did not name their plan. Build rows were dropped by the watermark of two batches before the last."""
    settled = Past(BEGINNING, content["past"]).as_of((content["last"] or (-1, 0))[0] - 2)
    uncovered = [earliest for _, _, earliest, *_ in content["guest"]["pins"]]
    return {**content, "plans": [], "build_kept_from": min([settled, *uncovered])}


_UPGRADES: Mapping[int, codec.Upgrade] = {2: _from_2, 3: _from_3}
