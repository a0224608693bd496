"""The messages between nodes, sources and the driver, as types. `control.encoding` turns them into Kafka records."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from balajoin.core.blocks import EARLIEST_US, LATEST_US, longs

ANY_PLAN = "*"
"""The plan in the driver's records, which are valid under every plan."""

_SHOWN_KEY_BYTES = 64

Lease = tuple[int, int, bool]
"""A signal asks for it and a home grants it: hash, node, and whether only a fragment's share of the build rows."""


class ForeignRecordError(ValueError):
    """This join did not write the record, or someone has changed it since."""


@dataclass(frozen=True)
class Stamp:
    """Which join wrote a record, and in which batch.

    `join` is Spark's id of the query, which a checkpoint keeps for life.
    Each `balajoin.join` draws a new `plan`. All attempts at a batch under one plan have the same settings and code, and
    so the same rows on the same nodes. Attempts under two plans may differ in everything.
    """

    join: str
    batch: int
    plan: str = ""

    def may_precede(self, now: "Stamp") -> bool:
        """Whether a record with this stamp may count in the batch of the stamp `now`."""
        return self.join == now.join and self.batch < now.batch


@dataclass(frozen=True)
class Signal:
    """To a key's home: `node` gets the key's probe rows with times up to `until`, and needs the key's build rows.

    `again` asks for all build rows that match probe rows from `since` on, even if they were sent before. `key` is one
    key with that hash, for people who read the topic.
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
    """A home's promise to forward every build row of this hash that reaches it, for probe rows up to `until`."""

    hash: int
    until: int
    fragment: bool = False


@dataclass(frozen=True)
class Shipment:
    """All that a home sends to a node in one batch. The node may already have rows of the `pulled` hashes."""

    home: int
    node: int
    rows: Sequence[pa.Table] = ()
    grants: Sequence[Grant] = ()
    pulled: Sequence[int] = ()


@dataclass(frozen=True)
class Report:
    """From a guest to a home: the home's build rows that have met a match, without key and value. It may come twice."""

    guest: int
    home: int
    rows: Sequence[pa.Table]


@dataclass(frozen=True)
class Tick:
    """From the driver to all nodes: no records have come, and the time is `now_ms`."""

    now_ms: int


@dataclass(frozen=True)
class Part:
    """One record of a shipment. A repeated task sends its shipments again, with another `attempt`."""

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
    """The beginning of the key as text, for people."""
    return key[:_SHOWN_KEY_BYTES].decode("utf-8", "backslashreplace")


def check_times(tables: Sequence[pa.Table]) -> None:
    for rows in tables:
        times = longs(rows, "time")
        if len(times) and not EARLIEST_US <= times.min() <= times.max() <= LATEST_US:
            raise ForeignRecordError("times that no edge lets in")
