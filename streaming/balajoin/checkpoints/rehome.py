"""The state of a join under another number of nodes: every row at its new home, what was on its way as results owed.

A row's new home is known from its hash, so each new node can be made of what the old ones held of its keys, without the
others: `scatter` takes the old nodes apart, `gather` makes a new one.
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
    """What a join is made anew of: its nodes so far, its last batch, and what it shall be."""

    nodes: int
    batch: int
    spec: JoinSpec

    def scatter(self, entry: Entry) -> Iterator[tuple[int, bytes]]:
        """What each new node has to know of an entry. Heads go to all of them."""
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
        """The whole state of a new node, of all that was scattered to it."""
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
        """All nodes agree on time, and batches begin anew: the last one becomes -1."""
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
