"""Moves the state of a join to another number of nodes: rows go to their new homes, missing results become owed ones.

A row's hash tells its new home. So each new node is built only from the rows of its own keys: `scatter` splits the old
nodes, `gather` builds a new one.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from balajoin.checkpoints.leftovers import Entry, Leftovers, last_batch
from balajoin.compute import owed
from balajoin.compute.state import HEAD, LastBatch, NodeState, new_name
from balajoin.compute.store import sliced, tagged, with_shelf
from balajoin.core.blocks import longs, partition_by, pieces
from balajoin.core.hashing import homes
from balajoin.core.pins import agreed
from balajoin.core.sides import Shelf
from balajoin.core.spec import JoinSpec


@dataclass(frozen=True)
class Rescale:
    """The old join's number of nodes and last batch, and the new join's spec."""

    nodes: int
    batch: int
    spec: JoinSpec

    def scatter(self, entry: Entry) -> Iterator[tuple[int, bytes]]:
        """The parts of an entry that go to each new node. Every new node gets all heads."""
        if entry.number == HEAD:
            yield from ((node, entry.block) for node in range(self.spec.nodes))
        elif entry.number < HEAD:
            yield entry.node % self.spec.nodes, entry.block
        else:
            rows, shelf = with_shelf(entry.block)
            targets = homes(longs(rows, "hash"), self.spec.nodes)
            for node, part in enumerate(partition_by(rows, targets, self.spec.nodes)):
                if part.num_rows:
                    yield node, tagged(shelf, part)

    def gather(self, entries: Iterable[Entry]) -> Iterator[tuple[int, bytes]]:
        """The complete state of a new node, from all parts that `scatter` sent to it."""
        old = Leftovers(entries, self.nodes, self.batch, self.spec)
        debts = 0
        for debt in owed.entries(old.owed()):
            yield debt
            debts += 1
        number = 0
        for shelf, tables in old.kept():
            for block in self._blocks(shelf, tables):
                yield number, block
                number += 1
        yield HEAD, self._state(old, number, debts).write()

    def _blocks(self, shelf: Shelf, tables: Iterable[pa.Table]) -> Iterator[bytes]:
        for piece in pieces(sorted(tables, key=_earliest)):
            yield from (tagged(shelf, single) for single in sliced(piece, self.spec.slice_us))

    def _state(self, old: Leftovers, next_number: int, debts: int) -> NodeState:
        """All new nodes get the same times. Batch numbers start again: the last batch becomes -1."""
        newest = max(old.nodes.values(), key=last_batch)
        return replace(
            newest,
            pins=agreed(None, self.spec.pins),
            lineage=new_name(),
            seal=new_name(),
            next_number=next_number,
            leases={},
            held={},
            uncovered={},
            channels={},
            probe_watermarks=[(at - self.batch - 1, mark) for at, mark in newest.probe_watermarks],
            decided=old.decided,
            overdue=[],
            plans=[],
            last=LastBatch(-1, next_number),
            owed=debts,
        )


def _earliest(rows: pa.Table) -> int:
    return int(longs(rows, "time").min())
