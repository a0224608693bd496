"""A checkpoint in figures: the rows and open requests of each node, and the frequent keys of each source."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa

from balajoin.checkpoints.reading import Checkpoint, InputName, Offsets
from balajoin.compute.pairs import PAIRS
from balajoin.compute.state import HEAD, GuestKey, NodeState, Uncovered
from balajoin.compute.store import with_shelf
from balajoin.core.blocks import decode, longs
from balajoin.core.envelope import Int, Long, schema_of
from balajoin.core.event_time import BEGINNING
from balajoin.core.hashing import homes
from balajoin.core.messages import Lease
from balajoin.core.sides import SIDES, Shelf, Side
from balajoin.errors import BlockError, StateError
from balajoin.routing import policies
from balajoin.routing.policies import HotKey
from balajoin.routing.state import SourceState
from balajoin.spark.schemas import spark_schema
from balajoin.spark.worker import settle

_SHOWN_KEY_BYTES = 64
_SHOWN: dict[Shelf, tuple[bool, str | None]] = {
    "probe": (False, "probe"),
    "fragment": (False, "fragment"),
    "build": (False, "build"),
    "unmatched_probe": (True, "probe"),
    "unmatched_build": (True, "build"),
    "overdue_build": (True, "build"),
    "met_probe": (False, None),
    "met_build": (False, None),
}
"""For each shelf: whether its rows wait until it is known that they have no match, and what they count as.

Marks do not count as rows.
"""


@dataclass(frozen=True)
class Described:
    """One entry of a node's state. `note` is the head itself, or JSON with a key for each wanted hash found."""

    node: Int
    shelf: Annotated[Shelf | Literal["owed"] | None, pa.string()]
    rows: Long
    own: Long
    size: Long
    earliest: Long
    latest: Long
    note: Annotated[bytes, pa.binary()]


_DESCRIBED = schema_of(Described)


@dataclass(frozen=True)
class Describer:
    """Describes blocks where Spark reads them, so only figures travel to the driver."""

    nodes: int
    wanted: tuple[int, ...]
    """Hashes whose keys are to be shown."""

    def as_function(self) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        def describe(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            settle()
            for batch in batches:
                described = [vars(self.describe(**entry)) for entry in batch.to_pylist()]
                yield pa.RecordBatch.from_pylist(described, _DESCRIBED)

        return describe

    def describe(self, node: int, number: int, block: bytes) -> Described:
        if number == HEAD:
            return Described(node, None, 0, 0, len(block), 0, 0, block)
        try:
            if number < HEAD:
                return Described(node, "owed", decode(block, PAIRS).num_rows, 0, len(block), 0, 0, b"{}")
            rows, shelf = with_shelf(block)
        except BlockError as damaged:
            raise StateError(
                f"block {number} of node {node} is damaged: restore the checkpoint from a copy, or start with a new one"
            ) from damaged
        hashes, times = longs(rows, "hash"), longs(rows, "time")
        own = int((homes(hashes, self.nodes) == node).sum())
        note = json.dumps(self._samples(rows)).encode()
        return Described(node, shelf, rows.num_rows, own, len(block), int(times.min()), int(times.max()), note)

    def _samples(self, rows: pa.Table) -> dict[int, str]:
        hashes = longs(rows, "hash")
        present = np.intersect1d(hashes, np.array(self.wanted, np.int64))
        first = {hash_: int(np.flatnonzero(hashes == hash_)[0]) for hash_ in present.tolist()}
        return {hash_: _text(rows.column("key")[row].as_py()) for hash_, row in first.items()}


def _text(key: bytes) -> str:
    return key[:_SHOWN_KEY_BYTES].decode("utf-8", "backslashreplace")


@dataclass
class NodeSummary:
    node: int
    rows: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("probe", "fragment", "build", "replicas", "waiting"), 0)
    )
    """`replicas` are build rows whose home is another node; `waiting` are all rows that have had no match yet."""
    owed: int = 0
    """Results to emit at the first start after a rescale."""
    blocks: int = 0
    bytes: int = 0
    oldest: int | None = None
    newest: int | None = None
    watermarks: dict[Side, int | None] = field(default_factory=lambda: dict.fromkeys(SIDES))
    leases: Mapping[Lease, int] = field(default_factory=dict)
    """To which nodes this node forwards build rows, and up to which time."""
    holds: int = 0
    uncovered: Mapping[GuestKey, Uncovered] = field(default_factory=dict)
    """Probe rows that wait for build rows from their home."""


@dataclass(frozen=True)
class SourceSummary:
    source: int
    newest: dict[Side, int | None]
    leases: list[list[Any]]
    policy: str
    hot_keys: list[HotKey]


@dataclass(frozen=True)
class CheckpointSummary:
    location: str
    join: str | None
    batch: int
    unfinished: int | None
    pins: dict[str, Any]
    offsets: Mapping[InputName, Offsets]
    nodes: list[NodeSummary]
    sources: list[SourceSummary]
    keys: dict[int, str]
    """For each frequent hash one of its keys, if a row of it is stored."""


def summary(checkpoint: Checkpoint) -> CheckpointSummary:
    sources = [source_summary(number, state) for number, state in sorted(checkpoint.sources.items())]
    describer = Describer(checkpoint.nodes, tuple({key.hash for source in sources for key in source.hot_keys}))
    rows = checkpoint.states.mapInArrow(describer.as_function(), spark_schema(_DESCRIBED)).collect()
    entries = [Described(**{**row.asDict(), "note": bytes(row["note"])}) for row in rows]
    pins, nodes, keys = node_summaries(entries)
    return CheckpointSummary(
        checkpoint.location,
        checkpoint.join,
        checkpoint.batch,
        checkpoint.unfinished,
        pins,
        checkpoint.offsets,
        nodes,
        sources,
        keys,
    )


def source_summary(number: int, state: bytes) -> SourceSummary:
    written = SourceState.read(state)
    policy, hot_keys = policies.remembered(written.policy)
    newest = {side: _time(written.latest[side]) for side in SIDES}
    leases = [[*lease, until] for lease, until in written.leases.items()]
    return SourceSummary(number, newest, leases, policy, hot_keys)


def node_summaries(entries: Iterable[Described]) -> tuple[dict[str, Any], list[NodeSummary], dict[int, str]]:
    """The pinned settings, the nodes, and the keys that were found."""
    pins: dict[str, Any] = {}
    keys: dict[int, str] = {}
    by_node: dict[int, NodeSummary] = {}
    headed: Collection[int] = set()
    for entry in entries:
        node = by_node.setdefault(entry.node, NodeSummary(entry.node))
        if entry.shelf is None:
            pins = _add_head(node, entry.note)
            headed = {*headed, entry.node}
        else:
            _add_block(node, entry)
            keys.update({int(hash_): key for hash_, key in json.loads(entry.note).items()})
    if by_node.keys() - headed:
        raise StateError(
            f"node {min(by_node.keys() - headed)} has rows but no head: the checkpoint is damaged. Restore it from a "
            "copy, or start with a new one"
        )
    return pins, [node for _, node in sorted(by_node.items())], keys


def _add_head(node: NodeSummary, state: bytes) -> dict[str, Any]:
    found = NodeState.read(state)
    node.bytes += len(state)
    node.watermarks = {side: _time(found.watermarks[side].current) for side in SIDES}
    node.leases = found.leases
    node.holds = len(found.held)
    node.uncovered = found.uncovered
    return dict(found.pins)


def _add_block(node: NodeSummary, entry: Described) -> None:
    node.bytes += entry.size
    if entry.shelf is None or entry.shelf == "owed":
        node.owed += entry.rows
        return
    waiting, name = _SHOWN[entry.shelf]
    node.blocks += 1
    node.rows["waiting"] += entry.rows if waiting else 0
    if name is not None:
        own = entry.own if name == "build" else entry.rows
        node.rows[name] += own
        node.rows["replicas"] += entry.rows - own
        node.oldest = entry.earliest if node.oldest is None else min(node.oldest, entry.earliest)
        node.newest = entry.latest if node.newest is None else max(node.newest, entry.latest)


def _time(micros: int) -> int | None:
    return micros if micros > BEGINNING else None
