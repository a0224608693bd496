"""The build rows at a node: joins stored ones with new probe rows, and stores new ones.

`BuildSide` is for joins in which an unmatched build row is no result. `UnmatchedBuildSide` also knows which build rows
have met a match. Only the home of a build row decides that the row has no match; guests report to the home which
replicas have met one.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from balajoin.compute import pairs
from balajoin.compute.matches import MatchedRows, Matcher
from balajoin.compute.node_time import Moment
from balajoin.compute.probe_side import Meeting
from balajoin.compute.unmatched import Mask, Numbers, Unmatched, marks, none_held, some_rows
from balajoin.core.blocks import longs
from balajoin.core.event_time import BEGINNING
from balajoin.core.hashing import homes
from balajoin.core.messages import Report
from balajoin.core.sides import Section, Shelf

_REPORTED_AFTER_FORWARD = 2

Overdue = tuple[int, int]
"""A block of build rows that came after all their possible matches: the batch in which they came, and its number."""


class BuildSide:
    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._store = matcher.store
        self._pairs = matcher.spec.kind.pairs

    def begin(self) -> None:
        """A batch begins."""

    def take_reports(self, reports: Sequence[Report]) -> int:
        """Takes reports from guests. Returns the number of tables not for this node: all, as this join needs none."""
        return sum(len(report.rows) for report in reports)

    def meet(self, section: Section, probe: pa.Table, moment: Moment) -> Meeting:
        """Joins new probe rows with stored build rows."""
        met = np.zeros(probe.num_rows, np.bool_)
        for found in self._matcher.find(section, probe, "build"):
            met[found.probe_rows] = True
            if self._pairs:
                yield found.paired()
        return met

    def keep(self, piece: pa.Table, met: Mask, moment: Moment) -> None:
        """Stores new rows whose home is this node."""
        self._store.add("build", piece)

    def keep_replicas(self, piece: pa.Table, met: Mask) -> None:
        """Stores new rows from other homes."""
        self._store.add("build", piece)

    def decide(self, moment: Moment) -> Iterator[pa.Table]:
        """Yields rows that can have no match any more."""
        yield from ()

    def expire_decided(self, moment: Moment) -> None:
        """Drops rows that are not needed once they are decided."""

    def expire(self, before: int, spared: int) -> None:
        """Drops runs older than `before`. Blocks numbered from `spared` on stay, however old."""
        self._store.expire("build", before, spared)

    def reports(self) -> list[Report]:
        """Tells the homes which of their replicas have met their first match here."""
        return []

    def close(self) -> None:
        """The batch ends."""

    @property
    def decided_below(self) -> int | None:
        """All unmatched rows older than this are decided. None if the join has no use for them."""
        return None

    @property
    def overdue(self) -> Sequence[Overdue]:
        return ()

    @property
    def undecided_rows(self) -> int:
        return 0


class UnmatchedBuildSide(BuildSide):
    def __init__(self, matcher: Matcher, decided_below: int, overdue: Sequence[Overdue]) -> None:
        super().__init__(matcher)
        self._number = matcher.node
        self._nodes = matcher.spec.nodes
        self._unmatched = Unmatched("build", matcher.store, decided_below)
        self._overdue = list(overdue)
        self._met_replicas: dict[int, list[pa.Table]] = defaultdict(list)

    def begin(self) -> None:
        self._met_replicas = defaultdict(list)

    def take_reports(self, reports: Sequence[Report]) -> int:
        foreign = 0
        for rows in (rows for report in reports for rows in report.rows):
            if (homes(longs(rows, "hash"), self._nodes) == self._number).all():
                self._unmatched.meet(rows, np.arange(rows.num_rows, dtype=np.int32))
            else:
                foreign += 1
        return foreign

    def meet(self, section: Section, probe: pa.Table, moment: Moment) -> Meeting:
        met = np.zeros(probe.num_rows, np.bool_)
        for shelf in ("build", self._unmatched.shelf):
            for found in self._matcher.find(section, probe, shelf):
                found = self._noting_met(found, shelf, moment.build_edge)
                if found:
                    met[found.probe_rows] = True
                    yield found.paired()
        return met

    def _noting_met(self, found: MatchedRows, shelf: Shelf, edge: int) -> MatchedRows:
        """Leaves out build rows that their home may have decided to be unmatched."""
        decided = longs(found.build, "time") < edge
        if shelf == self._unmatched.shelf:
            found = found.where(~decided[found.build_rows])
            self._unmatched.meet(found.build, found.build_rows)
        else:
            replicas = homes(longs(found.build, "hash"), self._nodes) != self._number
            found = found.where(~(decided & replicas)[found.build_rows])
            self._note_replicas_met(found.build, found.build_rows[replicas[found.build_rows]])
        return found

    def _note_replicas_met(self, build: pa.Table, numbers: Numbers) -> None:
        """Notes the matched replicas for a report to their home, which decides whether a row is unmatched."""
        if not len(numbers):
            return
        first = self._unmatched.meet(build, numbers)
        if len(first):
            met = marks(build, first)
            at = homes(longs(met, "hash"), self._nodes)
            for home in np.unique(at).tolist():
                self._met_replicas[home].extend(some_rows(met, at == home))

    def keep(self, piece: pa.Table, met: Mask, moment: Moment) -> None:
        """A late row is never emitted as unmatched: its matches may have expired."""
        times = longs(piece, "time")
        unmatched = ~met & (times >= moment.watermarks["build"])
        overdue = unmatched & (times < moment.overdue_edge)
        for rows in some_rows(piece, ~unmatched):
            self._store.add("build", rows)
        for rows in some_rows(piece, unmatched & ~overdue):
            self._store.add(self._unmatched.shelf, rows)
        for rows in some_rows(piece, overdue):
            self._overdue.append((moment.batch, self._store.lay_aside("overdue_build", rows)))

    def keep_replicas(self, piece: pa.Table, met: Mask) -> None:
        self._note_replicas_met(piece, np.flatnonzero(met))
        super().keep_replicas(piece, met)

    def decide(self, moment: Moment) -> Iterator[pa.Table]:
        for rows in self._unmatched.decide(moment.build_edge, none_held, none_held):
            yield pairs.alone("build", rows)
        due = [entry for entry in self._overdue if entry[0] <= moment.batch - _REPORTED_AFTER_FORWARD]
        for _, number in due:
            for rows in self._unmatched.alone(self._store.take_back(number)):
                yield pairs.alone("build", rows)
        self._overdue = [entry for entry in self._overdue if entry not in due]

    def expire_decided(self, moment: Moment) -> None:
        self._unmatched.expire(moment.build_edge)

    def reports(self) -> list[Report]:
        return [Report(self._number, home, tables) for home, tables in sorted(self._met_replicas.items())]

    def close(self) -> None:
        self._unmatched.close()

    @property
    def decided_below(self) -> int:
        return self._unmatched.decided_below

    @property
    def overdue(self) -> Sequence[Overdue]:
        return self._overdue

    @property
    def undecided_rows(self) -> int:
        return self._unmatched.undecided_rows + len(self._overdue)


def build_side(matcher: Matcher, decided_below: int = BEGINNING, overdue: Sequence[Overdue] = ()) -> BuildSide:
    """The class that the join's type needs."""
    if "build" in matcher.spec.kind.awaited:
        return UnmatchedBuildSide(matcher, decided_below, overdue)
    return BuildSide(matcher)
