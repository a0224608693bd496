"""One node of the join, without Spark: (state, a batch of inputs) → (joined rows, state, messages to publish).

Each new row is first joined with the stored rows of the other side, and then stored. So every pair meets exactly once,
whichever of its rows came first, in one batch or in two. The join's type decides what counts as a result: see
`probe_side` and `build_side`.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from balajoin.compute import owed, pairs
from balajoin.compute.build_side import build_side
from balajoin.compute.cache_folder import node_folder, remove_abandoned
from balajoin.compute.exchange import Arrival, LateRows, NodeInputs, Outcome, Results
from balajoin.compute.guest import Guest
from balajoin.compute.home import Home
from balajoin.compute.matches import Matcher
from balajoin.compute.node_time import Moment, NodeTime, moved
from balajoin.compute.probe_side import probe_side
from balajoin.compute.state import LastBatch, NodeState, new_name
from balajoin.compute.statistics import NodeStatistics
from balajoin.compute.store import BlockStore, Durable
from balajoin.compute.unmatched import positions
from balajoin.core.blocks import concat, pieces
from balajoin.core.event_time import BEGINNING, Past
from balajoin.core.messages import ANY_PLAN, Part, Stamp
from balajoin.core.pins import agreed
from balajoin.core.sides import SECTIONS, SHELVES, SIDES, Section, Side
from balajoin.core.spec import JoinSpec

_NO_POSITIONS = np.empty(0, np.int64)
_NO_BATCH = LastBatch(-1, 0)

Rows = Mapping[Section, Sequence[pa.Table]]


class Node:
    def __init__(self, spec: JoinSpec, state: bytes | None, durable: Durable, cache: Path, node: int) -> None:
        if state is None:
            remove_abandoned(cache)
        before = NodeState.first(agreed(None, spec.pins)) if state is None else NodeState.read(state)
        self._spec = spec
        self._number = node
        self._durable = durable
        self._pins = agreed(before.pins, spec.pins)
        self._lineage = before.lineage
        self._plans = Past("", list(before.plans))
        self._last = before.last or _NO_BATCH
        self._owed = before.owed
        self._build_kept_from = before.build_kept_from
        self._time = NodeTime(spec, before)
        self._home = Home(node, spec.nodes, dict(before.leases))
        self._guest = Guest(node, spec.nodes, dict(before.held), dict(before.uncovered), dict(before.channels))
        self.store = BlockStore(durable, node_folder(cache, self._lineage, node), spec.slice_us)
        self.store.open(before.next_number, before.seal)
        matcher = Matcher(self.store, spec, node)
        self._probe = probe_side(matcher, self._guest, before.decided.get("probe", BEGINNING))
        self._build = build_side(matcher, before.decided.get("build", BEGINNING), before.overdue)

    def watermark(self, side: Side) -> int:
        return self._time.watermark(side)

    def is_lost(self, sent: Stamp) -> bool:
        """Whether a record is of an abandoned attempt at a batch that was then run under another plan."""
        return sent.batch <= self._last.batch and sent.plan not in (self._plans.as_of(sent.batch), ANY_PLAN)

    def process(self, batch: int, inputs: NodeInputs) -> Results:
        return Results(self._process(batch, inputs))

    def _process(self, batch: int, inputs: NodeInputs) -> Generator[pa.Table, None, Outcome]:
        """Inputs first, then decisions and eviction: docs/correctness.md needs that order."""
        moment = self._time.moment(batch)
        counted = _Counted()
        self._last = LastBatch(batch, self.store.next_number)
        self._plans.note(batch, self._spec.plan)
        self._probe.begin()
        self._build.begin()
        yield from counted.of(owed.take(self._durable, self._owed))
        self._owed = 0
        ordered = sorted(inputs.arrivals, key=lambda a: (SECTIONS.index(a.section), a.source), reverse=True)
        late = [rows for arrival in ordered for rows in _late_rows(arrival, moment.watermarks[arrival.side])]
        rows = _by_section(ordered)
        replicas = self._take_shipments(inputs.parts, batch)
        foreign_reports = self._build.take_reports(inputs.reports)
        yield from counted.of(self._join(rows, replicas, moment))
        for table in rows["build"]:
            self._home.forward(table)
        self._home.answer(inputs.signals, self.store, moment.settled, self._build_kept_from, self._spec.before_us)
        yield from counted.of(self._probe.decide(moment))
        yield from counted.of(self._build.decide(moment))
        self._evict(moment)
        self._time.advance(batch, inputs.arrivals, inputs.ticks_ms)
        signals, shipments, reports = self._guest.asks(batch), list(self._home.shipments()), self._build.reports()
        self._home.end_leases(self.watermark("build"), self._spec.after_us)
        self._guest.end_holds(self.watermark("probe"))
        self._probe.close()
        self._build.close()
        seal = new_name()
        self.store.close(seal)
        statistics = replace(
            self._statistics(),
            pairs=counted.pairs,
            alone_rows=counted.alone,
            probe_rows=_count([*rows["probe"], *rows["fragment"]]),
            build_rows=_count(rows["build"]),
            replica_rows=_count(replicas),
            late_rows=_count(each.rows for each in late),
            late_build_rows=_count(each.rows for each in late if each.side == "build"),
            repeated_signals=len(signals),
            foreign_records=foreign_reports + self._home.foreign_signals + self._guest.foreign_parts,
        )
        return Outcome(late, signals, shipments, reports, statistics, self._state(seal).write())

    def _join(self, rows: Rows, replicas: Sequence[pa.Table], moment: Moment) -> Iterator[pa.Table]:
        """Joins each row with the stored rows of the other side, and then stores it."""
        for piece in pieces(rows["build"]):
            met = yield from self._probe.meet(piece)
            self._build.keep(piece, met, moment)
        for piece in pieces(replicas):
            met = yield from self._probe.meet(piece)
            self._build.keep_replicas(piece, met)
        for section in ("probe", "fragment"):
            for piece in pieces(rows[section]):
                met = yield from self._build.meet(section, piece, moment)
                self._guest.note_uncovered(piece, section == "fragment", moment.watermarks["probe"], moment.batch)
                yield from self._probe.keep(section, piece, met, moment)

    def _take_shipments(self, parts: Sequence[Part], batch: int) -> list[pa.Table]:
        """Build rows from other homes, without those that are stored already or came in another shipment."""
        taken: list[pa.Table] = []
        for shipment in self._guest.accept(parts, batch, moved(self._build_kept_from, -self._spec.before_us)):
            self._guest.hold(shipment.grants, batch)
            pulled = np.array(shipment.pulled, np.int64)
            rows = list(self._without_known(shipment.rows, pulled, taken)) if len(pulled) else shipment.rows
            taken.extend(table for table in rows if table.num_rows)
        return taken

    def _without_known(
        self, tables: Sequence[pa.Table], pulled: NDArray[np.int64], taken: Sequence[pa.Table]
    ) -> Iterator[pa.Table]:
        """A pull may repeat rows that came before, that its own batch forwards, or that another pull brings."""
        here = (*self.store.rows_with("build", pulled), *taken)
        known = np.concatenate([_NO_POSITIONS, *(positions(rows) for rows in here)])
        for rows in tables:
            mine = positions(rows)
            new = np.zeros(len(mine), np.bool_)
            new[np.unique(mine, return_index=True)[1]] = True
            new &= ~np.isin(mine, known)
            known = np.concatenate([known, mine])
            yield rows if new.all() else concat([rows.filter(pa.array(new))])

    def _evict(self, moment: Moment) -> None:
        """Uncovered probe rows stay, and so do build rows that may have been shipped here for them.

        Build rows of this batch stay too: they may be on their way to guests, and if the join was stopped now and
        rescaled, only their home would still have them.
        """
        uncovered = self._guest.earliest_uncovered
        build_watermark = moment.watermarks["build"]
        if build_watermark > BEGINNING:
            edge = build_watermark - self._spec.after_us
            self._probe.expire(edge if uncovered is None else min(edge, uncovered))
        self._build.expire_decided(moment)
        if moment.asked_from > BEGINNING:
            edge = moment.asked_from if uncovered is None else min(moment.asked_from, uncovered)
            self._build_kept_from = max(self._build_kept_from, edge)
            self._build.expire(edge - self._spec.before_us, spared=self._last.first_number)

    def _state(self, seal: str) -> NodeState:
        decided = {"probe": self._probe.decided_below, "build": self._build.decided_below}
        return NodeState(
            pins=self._pins,
            lineage=self._lineage,
            seal=seal,
            watermarks=self._time.watermarks,
            clock_ms=self._time.clock_ms,
            batch_ms=self._time.batch_ms,
            next_number=self.store.next_number,
            last=self._last,
            owed=self._owed,
            leases=self._home.leases,
            held=self._guest.held,
            uncovered=self._guest.uncovered,
            channels=self._guest.channels,
            probe_watermarks=self._time.probe_watermarks,
            plans=self._plans.changes,
            build_kept_from=self._build_kept_from,
            decided={side: below for side in SIDES if (below := decided[side]) is not None},
            overdue=self._build.overdue,
        )

    def _statistics(self) -> NodeStatistics:
        """The statistics of the node itself; `_process` adds the counts of the batch."""
        return NodeStatistics(
            self._number,
            waiting_rows=self._probe.undecided_rows + self._build.undecided_rows,
            stored_rows=sum(map(self.store.rows_of, SHELVES)),
            stored_bytes=self.store.bytes,
            pulls=self._home.pulls,
            pulled_rows=self._home.pulled_rows,
            forwarded_rows=self._home.forwarded_rows,
            pull_waits=self._guest.waits,
            leases=len(self._home.leases),
            pins=len(self._guest.uncovered),
            delayed_shipments=self._guest.delayed_shipments,
            incomplete_pulls=self._home.incomplete_pulls,
            watermarks={side: self.watermark(side) for side in SIDES},
        )


class _Counted:
    """Counts results while they are yielded."""

    def __init__(self) -> None:
        self.pairs = self.alone = 0

    def of(self, results: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for table in results:
            alone = pairs.count_alone(table)
            self.alone += alone
            self.pairs += table.num_rows - alone
            yield table


def _late_rows(arrival: Arrival, watermark: int) -> Iterator[LateRows]:
    for rows in arrival.rows:
        late = rows.column("time").to_numpy() < watermark
        if late.any():
            yield LateRows(arrival.side, watermark, rows.filter(pa.array(late)))


def _by_section(arrivals: Sequence[Arrival]) -> Rows:
    return {
        section: [table for a in arrivals if a.section == section for table in a.rows if table.num_rows]
        for section in SECTIONS
    }


def _count(tables: Iterable[pa.Table]) -> int:
    return sum(table.num_rows for table in tables)
