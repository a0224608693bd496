"""Finds the stored rows of one side that match new rows of the other."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from balajoin.compute import pairs
from balajoin.compute.home import in_fragment
from balajoin.compute.index import matches
from balajoin.compute.store import BlockStore
from balajoin.core.blocks import longs
from balajoin.core.sides import Section, Shelf, side_of
from balajoin.core.spec import JoinSpec


@dataclass(frozen=True)
class MatchedRows:
    """Pairs of matching rows: `probe_rows[i]` of `probe` matches `build_rows[i]` of `build`."""

    probe: pa.Table
    probe_rows: NDArray[np.int32]
    build: pa.Table
    build_rows: NDArray[np.int32]

    def __bool__(self) -> bool:
        return len(self.probe_rows) > 0

    def where(self, mine: NDArray[np.bool_]) -> "MatchedRows":
        if mine.all():
            return self
        return MatchedRows(self.probe, self.probe_rows[mine], self.build, self.build_rows[mine])

    def paired(self) -> pa.Table:
        return pairs.paired(self.probe, self.probe_rows, self.build, self.build_rows)


@dataclass(frozen=True)
class Matcher:
    """Looks rows up in the store of one node."""

    store: BlockStore
    spec: JoinSpec
    node: int

    def find(self, section: Section, piece: pa.Table, shelf: Shelf) -> Iterator[MatchedRows]:
        """Matches on `shelf` of `piece`, which came in `section`. A fragment meets only its share of the build rows."""
        side = side_of(section)
        window = self.spec.window(side)
        times = longs(piece, "time")
        for run in self.store.runs(shelf, int(times.min()) + window.lower, int(times.max()) + window.upper):
            chunk = pairs.at_once(piece, run.rows)
            for mine, theirs in matches(piece, run.index, run.rows, window, chunk):
                if side == "probe":
                    found = MatchedRows(piece, mine, run.rows, theirs)
                else:
                    found = MatchedRows(run.rows, theirs, piece, mine)
                if "fragment" in (section, shelf):
                    found = found.where(in_fragment(found.build, self.node, self.spec.nodes)[found.build_rows])
                if found:
                    yield found
