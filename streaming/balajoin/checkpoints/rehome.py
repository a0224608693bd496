"""The state of a join under another number of nodes: every row at its new home, what was on its way as results owed.

A row's new home is known from its hash, so each new node can be made of what the old ones held of its keys. A probe row
that was a guest at node *j* has met the build rows that had reached *j*. Those that its old home has and that had not
are joined here, and the new node hands the results out in its first batch. Which they are: see docs/architecture.md.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from balajoin.blocks import concat, decode, longs, partition_by, pieces
from balajoin.compute import head, index, owed, pairs
from balajoin.compute.home import in_fragment
from balajoin.compute.join import positions
from balajoin.compute.pairs import PAIRS
from balajoin.compute.spec import JoinSpec
from balajoin.compute.store import sliced, tagged, with_section
from balajoin.compute.watermarks import Past
from balajoin.errors import StateError
from balajoin.hashing import homes
from balajoin.sides import Section

Mask = NDArray[np.bool_]
Hashes = NDArray[np.int64]


@dataclass(frozen=True)
class Entry:
    """Of an old node's state."""

    node: int
    number: int
    block: bytes


@dataclass(frozen=True)
class Rescale:
    """What a join is made anew of: its nodes so far, its last batch, and what it shall be."""

    nodes: int
    batch: int
    spec: JoinSpec

    def scatter(self, entry: Entry) -> Iterator[tuple[int, bytes]]:
        """What each new node has to know of an entry. Heads go to all of them."""
        if entry.number == head.HEAD:
            yield from ((node, entry.block) for node in range(self.spec.nodes))
        elif entry.number < head.HEAD:
            yield entry.node % self.spec.nodes, entry.block
        else:
            rows, section = with_section(entry.block)
            targets = homes(longs(rows, "hash"), self.spec.nodes)
            for node, part in enumerate(partition_by(rows, targets, self.spec.nodes)):
                if part.num_rows:
                    yield node, tagged(section, part)

    def gather(self, entries: Iterable[Entry]) -> Iterator[tuple[int, bytes]]:
        """The whole state of a new node, of all that was scattered to it."""
        old = _Old(self, entries)
        number = 0
        kept: tuple[tuple[Section, Iterator[pa.Table]], ...] = (("build", old.build()), ("probe", old.probe()))
        for section, tables in kept:
            for piece in pieces(sorted(tables, key=_earliest)):
                for single in sliced(piece, self.spec.slice_us):
                    yield number, tagged(section, single)
                    number += 1
        debts = 0
        for debt in owed.entries(old.owed()):
            yield debt
            debts += 1
        yield head.HEAD, head.write(self._head(old.heads, number, debts))

    def _head(self, heads: Mapping[int, Mapping[str, Any]], next_number: int, debts: int) -> dict[str, Any]:
        """All nodes agree on time, and batches begin anew: the last one becomes -1."""
        newest = max(heads.values(), key=last_batch)
        return {
            **newest,
            "pins": self.spec.pins,
            "lineage": uuid4().hex,
            "seal": uuid4().hex,
            "next_number": next_number,
            "leases": [],
            "guest": {"held": [], "pins": [], "channels": []},
            "past": [[at - self.batch - 1, mark] for at, mark in newest["past"]],
            "last": [-1, next_number],
            "owed": debts,
        }


@dataclass(frozen=True)
class _Stored:
    node: int
    is_new: bool
    """Whether the node's last batch brought it, if that was the join's last one."""
    section: Section
    rows: pa.Table


class _Old:
    """What the old nodes held of a new node's keys."""

    def __init__(self, change: Rescale, entries: Iterable[Entry]) -> None:
        self._change = change
        self.heads: dict[int, Mapping[str, Any]] = {}
        self._blocks: list[Entry] = []
        self._owed: list[bytes] = []
        for entry in entries:
            if entry.number == head.HEAD:
                self.heads[entry.node] = head.read(entry.block)
            elif entry.number < head.HEAD:
                self._owed.append(entry.block)
            else:
                self._blocks.append(entry)

    def build(self) -> Iterator[pa.Table]:
        """Without replicas."""
        for stored in self._stored("build"):
            yield from _some(stored.rows, self._is_at_home(stored))

    def probe(self) -> Iterator[pa.Table]:
        """Wherever they were, and of several fragments one."""
        for stored in self._stored("probe"):
            yield stored.rows
        known = np.empty(0, np.int64)
        for stored in self._stored("fragment"):
            mine = positions(stored.rows)
            yield from _some(stored.rows, ~np.isin(mine, known))
            known = np.union1d(known, mine)

    def owed(self) -> Iterator[pa.Table]:
        for block in self._owed:
            yield concat([decode(block, PAIRS)])
        guests = [
            _Stored(stored.node, stored.is_new, section, rows)
            for section in ("probe", "fragment")
            for stored in self._stored(section)
            for rows in _some(stored.rows, ~self._is_at_home(stored))
        ]
        if not guests:
            return
        hashes = np.unique(np.concatenate([longs(guest.rows, "hash") for guest in guests]))
        replicas = self._replicas(hashes)
        for stored in self._stored("build"):
            at_home = self._is_at_home(stored) & np.isin(longs(stored.rows, "hash"), hashes)
            for rows in _some(stored.rows, at_home):
                lookup = index.build(longs(rows, "hash"), longs(rows, "time"))
                for guest in guests:
                    yield from self._unmet(guest, rows, lookup, self._missed(guest, stored, rows, replicas[guest.node]))

    def _unmet(self, guest: _Stored, build: pa.Table, lookup: index.Index, missed: Mask) -> Iterator[pa.Table]:
        if not missed.any():
            return
        window = self._change.spec.window("probe")
        for mine, theirs in index.matches(guest.rows, lookup, build, window, pairs.at_once(guest.rows, build)):
            unmet = missed[theirs]
            if unmet.any():
                yield pairs.paired(guest.rows, mine[unmet], build, theirs[unmet])

    def _missed(self, guest: _Stored, stored: _Stored, build: pa.Table, known: Hashes) -> Mask:
        """Which build rows of a home should have reached the guest's node, and had not.

        What a node had is still there unless it was too old to keep. Of what is older, only rows that came to their
        home in the last batch are still on their way.
        """
        missed: Mask = ~np.isin(positions(build), known)
        if not stored.is_new:
            missed &= longs(build, "time") + self._change.spec.before_us >= self._kept_from(guest.node)
        if guest.section == "fragment":
            missed &= in_fragment(build, guest.node, self._change.nodes)
        return missed

    def _kept_from(self, node: int) -> int:
        """What was at the node when its last batch evicted, and matches probe times from here on, is still there."""
        content = self.heads[node]
        settled = Past([(at, mark) for at, mark in content["past"]]).as_of(last_batch(content)[0] - 2)
        pinned: list[int] = [earliest for _, _, earliest, *_ in content["guest"]["pins"]]
        return min([settled, *pinned])

    def _replicas(self, hashes: Hashes) -> dict[int, Hashes]:
        """Of each node, who the build rows of these hashes are that it has."""
        found: dict[int, list[Hashes]] = {node: [] for node in self.heads}
        for stored in self._stored("build"):
            found[stored.node].append(positions(stored.rows)[np.isin(longs(stored.rows, "hash"), hashes)])
        return {node: np.concatenate(some) if some else np.empty(0, np.int64) for node, some in found.items()}

    def _stored(self, section: Section) -> Iterator[_Stored]:
        for entry in self._blocks:
            rows, at = with_section(entry.block)
            if at == section:
                last, first_number = last_batch(self.heads[entry.node])
                is_new = last == self._change.batch and entry.number >= first_number
                yield _Stored(entry.node, is_new, section, rows)

    def _is_at_home(self, stored: _Stored) -> Mask:
        at_home: Mask = homes(longs(stored.rows, "hash"), self._change.nodes) == stored.node
        return at_home


def last_batch(content: Mapping[str, Any]) -> tuple[int, int]:
    """Of a node's head: its last batch, and the number of the first block that this brought."""
    if content.get("last") is None:
        raise StateError(
            "the checkpoint was last written by an older balajoin, which did not note what is on its way: start and "
            "stop the join once with this one, then rescale"
        )
    batch, first_number = content["last"]
    return batch, first_number


def _some(rows: pa.Table, which: Mask) -> Sequence[pa.Table]:
    if which.all():
        return [rows]
    return [concat([rows.filter(pa.array(which))])] if which.any() else []


def _earliest(rows: pa.Table) -> int:
    return int(longs(rows, "time").min())
