"""The state of some keys at the nodes of a stopped join: which rows a new node keeps, and which results are owed.

A probe row that was a guest at node *j* has met the build rows that had reached *j*. Build rows that its home has, and
that had not reached *j*, are joined here: these results are owed. docs/rescale.md proves which they are. No message is
in flight after a stop. So joins that emit rows without a match also decide the rows that only waited for messages.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from balajoin.compute import index, pairs
from balajoin.compute.guest import is_uncovered
from balajoin.compute.home import in_fragment
from balajoin.compute.pairs import PAIRS
from balajoin.compute.state import HEAD, LastBatch, NodeState
from balajoin.compute.store import shelf_of, with_shelf
from balajoin.compute.unmatched import Mask, marks, positions, some_rows
from balajoin.core.blocks import concat, decode, longs, pieces
from balajoin.core.event_time import BEGINNING
from balajoin.core.hashing import homes
from balajoin.core.sides import SIDES, Shelf, Side
from balajoin.core.spec import JoinSpec
from balajoin.errors import StateError

Longs = NDArray[np.int64]
_NONE: Longs = np.empty(0, np.int64)
_MET: Mapping[Side, Shelf] = {"probe": "met_probe", "build": "met_build"}


@dataclass(frozen=True)
class Entry:
    """One entry of a node's state."""

    node: int
    number: int
    block: bytes


@dataclass(frozen=True)
class _Stored:
    node: int
    is_new: bool
    """Whether the rows came in the join's last batch."""
    shelf: Shelf
    rows: pa.Table

    def only(self, which: Mask) -> "Sequence[_Stored]":
        return [_Stored(self.node, self.is_new, self.shelf, rows) for rows in some_rows(self.rows, which)]


@dataclass(frozen=True)
class _Guests:
    node: int
    shelf: Shelf
    rows: pa.Table


class Leftovers:
    def __init__(self, entries: Iterable[Entry], nodes: int, batch: int, spec: JoinSpec) -> None:
        """`nodes` and `batch` are those of the stopped join; `spec` is that of the rescaled join."""
        self._nodes = nodes
        self._batch = batch
        self._spec = spec
        self.nodes: dict[int, NodeState] = {}
        self._blocks: list[Entry] = []
        self._owed: list[bytes] = []
        for entry in entries:
            if entry.number == HEAD:
                self.nodes[entry.node] = NodeState.read(entry.block)
            elif entry.number < HEAD:
                self._owed.append(entry.block)
            else:
                self._blocks.append(entry)
        self._marks: dict[Side, list[pa.Table]] = {"probe": [], "build": []}
        self._met: dict[Side, Longs] = {"probe": _NONE, "build": _NONE}
        for side in SIDES:
            for stored in self._stored(_MET[side]):
                self._mark(side, stored.rows)

    # --- rows to keep -------------------------------------------------------------------------------------------------

    def kept(self) -> Iterator[tuple[Shelf, Iterable[pa.Table]]]:
        """All rows and marks, each once. Call it after `owed`, which adds marks."""
        yield "build", (some.rows for stored in self._stored("build") for some in stored.only(self._is_at_home(stored)))
        yield "probe", self._probe()
        yield "unmatched_probe", (stored.rows for stored in self._stored("unmatched_probe"))
        yield "unmatched_build", (stored.rows for stored in self._stored("unmatched_build"))
        yield from ((_MET[side], self._marks[side]) for side in SIDES)

    def _probe(self) -> Iterator[pa.Table]:
        """Keeps one of a row's fragments."""
        yield from (stored.rows for stored in self._stored("probe"))
        yield from _distinct([stored.rows for stored in self._stored("fragment")])

    @property
    def decided(self) -> dict[Side, int]:
        """Up to which time each side is decided. Idle nodes had decided less; now all are at the latest point."""
        sides = [side for side in SIDES if any(side in state.decided for state in self.nodes.values())]
        return {side: max(self._decided_below(side, node) for node in self.nodes) for side in sides}

    # --- results that are owed ----------------------------------------------------------------------------------------

    def owed(self) -> Iterator[pa.Table]:
        yield from (concat([decode(block, PAIRS)]) for block in self._owed)
        yield from self._on_their_way()
        kind = self._spec.kind
        shelves: tuple[Shelf, ...] = ("unmatched_probe", "unmatched_build", "overdue_build")
        for stored in (stored for shelf in shelves for stored in self._stored(shelf)):
            side: Side = "probe" if stored.shelf == "unmatched_probe" else "build"
            if side in kind.alone:
                due = self._may_meet(stored) & self._is_due(stored, side) & ~self._have_met(side, stored.rows)
                yield from (pairs.alone(side, rows) for rows in some_rows(stored.rows, due))

    def _on_their_way(self) -> Iterator[pa.Table]:
        guests = list(self._guests())
        if not guests:
            return
        hashes = np.unique(np.concatenate([longs(guest.rows, "hash") for guest in guests]))
        had = self._build_rows_had(hashes)
        shelves: tuple[Shelf, ...] = ("build", "unmatched_build", "overdue_build")
        for stored in (stored for shelf in shelves for stored in self._stored(shelf)):
            wanted = self._is_at_home(stored) & self._may_meet(stored) & np.isin(longs(stored.rows, "hash"), hashes)
            for build in stored.only(wanted):
                lookup = index.build(longs(build.rows, "hash"), longs(build.rows, "time"))
                for guest in guests:
                    yield from self._join(guest, build, lookup, self._missed(guest, build, had[guest.node]))

    def _guests(self) -> Iterator[_Guests]:
        """Probe rows away from home."""
        found: dict[tuple[int, Shelf], list[pa.Table]] = defaultdict(list)
        shelves: tuple[Shelf, ...] = ("probe", "fragment", "unmatched_probe")
        for stored in (stored for shelf in shelves for stored in self._stored(shelf)):
            away = ~self._is_at_home(stored) & self._may_meet(stored)
            found[stored.node, stored.shelf].extend(some_rows(stored.rows, away))
        for (node, shelf), tables in found.items():
            yield from (_Guests(node, shelf, rows) for rows in pieces(tables))

    def _join(self, guest: _Guests, build: _Stored, lookup: index.Index, missed: Mask) -> Iterator[pa.Table]:
        if not missed.any():
            return
        window, kind = self._spec.window("probe"), self._spec.kind
        at_once = pairs.at_once(guest.rows, build.rows)
        for mine, theirs in index.matches(guest.rows, lookup, build.rows, window, at_once):
            unmet = missed[theirs]
            if not unmet.any():
                continue
            if kind.pairs:
                yield pairs.paired(guest.rows, mine[unmet], build.rows, theirs[unmet])
            elif kind.first_match:
                first = np.zeros(guest.rows.num_rows, np.bool_)
                first[mine[unmet]] = True
                first &= ~self._have_met("probe", guest.rows)
                yield from (pairs.alone("probe", rows) for rows in some_rows(guest.rows, first))
            if guest.shelf == "unmatched_probe":
                self._mark("probe", marks(guest.rows, np.unique(mine[unmet])))
            if build.shelf != "build":
                self._mark("build", marks(build.rows, np.unique(theirs[unmet])))

    def _missed(self, guest: _Guests, build: _Stored, had: Longs) -> Mask:
        """Which build rows of a home had not reached the guest's node.

        A node still has the rows that had reached it, except those that it has evicted. Of rows old enough to be
        evicted, only those that came to their home in the last batch had not reached the guest's node.
        """
        missed: Mask = ~np.isin(positions(build.rows), had)
        if not build.is_new:
            missed &= longs(build.rows, "time") + self._spec.before_us >= self._kept_from(guest.node)
        if guest.shelf == "fragment":
            missed &= in_fragment(build.rows, guest.node, self._nodes)
        return missed

    def _kept_from(self, node: int) -> int:
        """The node has evicted no build row that matches a probe row of this time or later."""
        return self.nodes[node].build_kept_from

    def _build_rows_had(self, hashes: Longs) -> dict[int, Longs]:
        """The positions of the build rows of these hashes that each node has."""
        found: dict[int, list[Longs]] = {node: [_NONE] for node in self.nodes}
        for stored in self._stored("build"):
            found[stored.node].append(positions(stored.rows)[np.isin(longs(stored.rows, "hash"), hashes)])
        return {node: np.concatenate(some) for node, some in found.items()}

    # --- rows without a match -----------------------------------------------------------------------------------------

    def _may_meet(self, stored: _Stored) -> Mask:
        """False for rows that are already decided to have no match."""
        if stored.shelf == "unmatched_build":
            undecided: Mask = longs(stored.rows, "time") >= self._decided_below("build", stored.node)
        elif stored.shelf == "unmatched_probe":
            undecided = longs(stored.rows, "time") >= self._decided_below("probe", stored.node)
            undecided |= is_uncovered(stored.rows, self.nodes[stored.node].uncovered)
            undecided |= self._have_met("probe", stored.rows)
        else:
            undecided = np.ones(stored.rows.num_rows, np.bool_)
        return undecided

    def _is_due(self, stored: _Stored, side: Side) -> Mask:
        if stored.shelf == "overdue_build":
            return np.ones(stored.rows.num_rows, np.bool_)
        due: Mask = longs(stored.rows, "time") < self.decided[side]
        return due

    def _have_met(self, side: Side, rows: pa.Table) -> Mask:
        met: Mask = np.isin(positions(rows), self._met[side])
        return met

    def _mark(self, side: Side, rows: pa.Table) -> None:
        """Keeps each mark once: guests and the home may mark the same build row."""
        self._marks[side].extend(some_rows(rows, ~self._have_met(side, rows)))
        self._met[side] = np.union1d(self._met[side], positions(rows))

    def _decided_below(self, side: Side, node: int) -> int:
        return self.nodes[node].decided.get(side, BEGINNING)

    # --- the blocks ---------------------------------------------------------------------------------------------------

    def _stored(self, wanted: Shelf) -> Iterator[_Stored]:
        for entry in self._blocks:
            if shelf_of(entry.block) == wanted:
                last = last_batch(self.nodes[entry.node])
                is_new = last.batch == self._batch and entry.number >= last.first_number
                yield _Stored(entry.node, is_new, wanted, with_shelf(entry.block)[0])

    def _is_at_home(self, stored: _Stored) -> Mask:
        at_home: Mask = homes(longs(stored.rows, "hash"), self._nodes) == stored.node
        return at_home


def last_batch(state: NodeState) -> LastBatch:
    if state.last is None:
        raise StateError(
            "the checkpoint was last written by an older balajoin, which did not note which rows are in flight: start "
            "and stop the join once with this one, then rescale"
        )
    return state.last


def _distinct(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Keeps one row of each Kafka position."""
    known = _NONE
    for rows in tables:
        mine = positions(rows)
        first = np.zeros(len(mine), np.bool_)
        first[np.unique(mine, return_index=True)[1]] = True
        yield from some_rows(rows, first & ~np.isin(mine, known))
        known = np.union1d(known, mine)
