"""The probe rows at a node: joins stored ones with new build rows, and stores new ones.

`ProbeSide` is for joins in which an unmatched probe row is no result. `UnmatchedProbeSide` also knows which probe rows
have met a match: it emits those that have none, or, in a left_semi join, those that have one.
"""

from collections.abc import Generator, Iterator, Mapping

import numpy as np
import pyarrow as pa

from balajoin.compute import pairs
from balajoin.compute.guest import Guest, is_uncovered
from balajoin.compute.matches import Matcher
from balajoin.compute.node_time import Moment
from balajoin.compute.state import GuestKey, Uncovered
from balajoin.compute.unmatched import Mask, Unmatched, some_rows
from balajoin.core.blocks import concat, longs
from balajoin.core.event_time import BEGINNING
from balajoin.core.sides import Section, Shelf

Meeting = Generator[pa.Table, None, Mask]
"""Yields results, and returns which of the new rows have met a match."""


class ProbeSide:
    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._store = matcher.store

    def begin(self) -> None:
        """A batch begins."""

    def meet(self, build: pa.Table) -> Meeting:
        """Joins new build rows with stored probe rows."""
        met = np.zeros(build.num_rows, np.bool_)
        for shelf in ("probe", "fragment"):
            for found in self._matcher.find("build", build, shelf):
                met[found.build_rows] = True
                yield found.paired()
        return met

    def keep(self, section: Section, piece: pa.Table, met: Mask, moment: Moment) -> Iterator[pa.Table]:
        """Stores new rows. Yields those that are already known to be results."""
        self._store.add(section, piece)
        yield from ()

    def decide(self, moment: Moment) -> Iterator[pa.Table]:
        """Yields rows that can have no match any more."""
        yield from ()

    def expire(self, before: int) -> None:
        for section in ("probe", "fragment"):
            self._store.expire(section, before)

    def close(self) -> None:
        """The batch ends."""

    @property
    def decided_below(self) -> int | None:
        """All unmatched rows older than this are decided. None if the join has no use for them."""
        return None

    @property
    def undecided_rows(self) -> int:
        return 0


class UnmatchedProbeSide(ProbeSide):
    def __init__(self, matcher: Matcher, guest: Guest, decided_below: int) -> None:
        super().__init__(matcher)
        self._kind = matcher.spec.kind
        self._unmatched = Unmatched("probe", matcher.store, decided_below)
        self._guest = guest
        self._uncovered_before: Mapping[GuestKey, Uncovered] = {}

    def begin(self) -> None:
        self._uncovered_before = dict(self._guest.uncovered)

    def meet(self, build: pa.Table) -> Meeting:
        met = yield from super().meet(build)
        for found in self._matcher.find("build", build, self._unmatched.shelf):
            found = found.where(self._unmatched.may_meet(found.probe, found.probe_rows, self._was_uncovered))
            if not found:
                continue
            met[found.build_rows] = True
            first = self._unmatched.meet(found.probe, found.probe_rows)
            if self._kind.pairs:
                yield found.paired()
            elif self._kind.first_match and len(first):
                yield pairs.alone("probe", concat([found.probe.take(pa.array(first))]))
        return met

    def keep(self, section: Section, piece: pa.Table, met: Mask, moment: Moment) -> Iterator[pa.Table]:
        """A row that no build row on time can match any more is decided at once, and not stored."""
        times = longs(piece, "time")
        alone = ~met & (times >= moment.watermarks["probe"])
        waits = alone & ((times >= moment.probe_edge) | self._is_uncovered(piece))
        if self._kind.first_match:
            yield from (pairs.alone("probe", rows) for rows in some_rows(piece, met))
        if "probe" in self._kind.alone:
            yield from (pairs.alone("probe", rows) for rows in some_rows(piece, alone & ~waits))
        self._add(self._unmatched.shelf, piece, waits)
        if self._kind.pairs:
            self._add("probe", piece, ~alone)

    def decide(self, moment: Moment) -> Iterator[pa.Table]:
        if "probe" in self._kind.alone:
            decided = self._unmatched.decide(moment.probe_edge, self._was_uncovered, self._is_uncovered)
            yield from (pairs.alone("probe", rows) for rows in decided)

    def expire(self, before: int) -> None:
        super().expire(before)
        self._unmatched.expire(before)

    def close(self) -> None:
        self._unmatched.close()

    @property
    def decided_below(self) -> int:
        return self._unmatched.decided_below

    @property
    def undecided_rows(self) -> int:
        return self._unmatched.undecided_rows if "probe" in self._kind.alone else 0

    def _add(self, shelf: Shelf, piece: pa.Table, which: Mask) -> None:
        for rows in some_rows(piece, which):
            self._store.add(shelf, rows)

    def _was_uncovered(self, rows: pa.Table) -> Mask:
        return is_uncovered(rows, self._uncovered_before)

    def _is_uncovered(self, rows: pa.Table) -> Mask:
        return is_uncovered(rows, self._guest.uncovered)


def probe_side(matcher: Matcher, guest: Guest, decided_below: int = BEGINNING) -> ProbeSide:
    """The class that the join's type needs."""
    if "probe" in matcher.spec.kind.awaited:
        return UnmatchedProbeSide(matcher, guest, decided_below)
    return ProbeSide(matcher)
