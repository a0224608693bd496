"""Rows that have met no match so far, for join types that need to know: until they meet one, or surely have none.

A row that has no match when it comes goes to its side's `unmatched` shelf. When it meets a match later, a mark with its
position goes to the `met` shelf, because stored rows are never rewritten. Once the watermark has passed the last time
at which a match could come, an unmatched row without a mark is *decided* to be alone: it is joined with nothing more.

The home of a build row decides it. A guest that finds a match for a replica reports that to the home: see `marks`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from balajoin.compute.store import BlockStore
from balajoin.core.blocks import ROWS, concat, longs
from balajoin.core.event_time import BEGINNING
from balajoin.core.sides import Shelf, Side

Numbers = NDArray[np.signedinteger]
Mask = NDArray[np.bool_]
Held = Callable[[pa.Table], Mask]
"""Tells which rows must not be decided yet."""

_UNMATCHED: Mapping[Side, Shelf] = {"probe": "unmatched_probe", "build": "unmatched_build"}
_MET: Mapping[Side, Shelf] = {"probe": "met_probe", "build": "met_build"}


class Unmatched:
    """The unmatched rows of one side at one node. Those older than `decided_below` are decided, unless held back."""

    def __init__(self, side: Side, store: BlockStore, decided_below: int = BEGINNING) -> None:
        self.shelf = _UNMATCHED[side]
        self.decided_below = decided_below
        self._met = _MET[side]
        self._store = store
        self._new_marks: list[pa.Table] = []

    def meet(self, rows: pa.Table, numbers: Numbers) -> Numbers:
        """Marks these rows of a table. Returns the numbers of those that had no mark, each once."""
        distinct = np.unique(numbers)
        first: Numbers = distinct[~self.have_met(rows, distinct)]
        if len(first):
            self._new_marks.append(marks(rows, first))
        return first

    def have_met(self, rows: pa.Table, numbers: Numbers) -> Mask:
        hashes = np.unique(longs(rows, "hash")[numbers])
        known = [positions(found) for found in (*self._store.rows_with(self._met, hashes), *self._new_marks)]
        if not known:
            return np.zeros(len(numbers), np.bool_)
        return np.isin(positions(rows)[numbers], np.concatenate(known))

    def may_meet(self, rows: pa.Table, numbers: Numbers, held: Held) -> Mask:
        """False for rows that are decided to be alone."""
        open_ = longs(rows, "time")[numbers] >= self.decided_below
        if not open_.all():
            decided = np.flatnonzero(~open_)
            open_[decided] = held(rows)[numbers[decided]] | self.have_met(rows, numbers[decided])
        return open_

    def decide(self, edge: int, was_held: Held, is_held: Held) -> Iterator[pa.Table]:
        """Yields each row older than `edge` that is now decided to be alone, once."""
        for run in self._store.runs(self.shelf, BEGINNING, edge - 1):
            times = longs(run.rows, "time")
            due = (times < edge) & ((times >= self.decided_below) | was_held(run.rows)) & ~is_held(run.rows)
            if due.any():
                yield from self.alone(run.rows, due)
        self.decided_below = max(self.decided_below, edge)

    def alone(self, rows: pa.Table, among: Mask | None = None) -> Iterator[pa.Table]:
        """Those of the rows that have met no match."""
        numbers = np.arange(rows.num_rows) if among is None else np.flatnonzero(among)
        left = numbers[~self.have_met(rows, numbers)]
        if len(left):
            yield concat([rows.take(pa.array(left))])

    def expire(self, before: int) -> None:
        for shelf in (self.shelf, self._met):
            self._store.expire(shelf, before)

    def close(self) -> None:
        """Stores the batch's marks."""
        if self._new_marks:
            self._store.add(self._met, concat(self._new_marks))
            self._new_marks = []

    @property
    def undecided_rows(self) -> int:
        """The number of undecided rows, and of rows that share a run with them."""
        return sum(run.info.rows for run in self._store.runs(self.shelf, self.decided_below, 1 << 62))


def none_held(rows: pa.Table) -> Mask:
    return np.zeros(rows.num_rows, np.bool_)


def some_rows(rows: pa.Table, which: Mask) -> Sequence[pa.Table]:
    """The selected rows as one single-chunk table; no table if none is selected."""
    if which.all():
        return [rows]
    return [concat([rows.filter(pa.array(which))])] if which.any() else []


def marks(rows: pa.Table, numbers: Numbers) -> pa.Table:
    """Marks for these rows: what identifies them, without key and value."""
    columns = [pa.array(longs(rows, name)[numbers]) for name in ("hash", "time", "partition", "offset")]
    nothing = pa.array([b""] * len(numbers), pa.binary())
    return pa.Table.from_arrays([*columns, nothing, nothing], schema=ROWS)


def positions(rows: pa.Table) -> NDArray[np.int64]:
    """Partition and offset as one number, which identifies a row."""
    return longs(rows, "partition").astype(np.int64) << 48 | longs(rows, "offset")
