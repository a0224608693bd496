"""What nodes, sources and the driver tell each other, as types. `control.encoding` writes them to topics."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from balajoin.core.blocks import EARLIEST_US, LATEST_US, longs

ANY_PLAN = "*"
"""Of records that say the same under every plan: the driver's."""

_SHOWN_KEY_BYTES = 64

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


def check_times(tables: Sequence[pa.Table]) -> None:
    for rows in tables:
        times = longs(rows, "time")
        if len(times) and not EARLIEST_US <= times.min() <= times.max() <= LATEST_US:
            raise ForeignRecordError("times that no edge lets in")
