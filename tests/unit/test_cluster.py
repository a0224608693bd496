"""All nodes and sources of a join, and its two topics, without Spark: random schedules against the join's definition.

Routing is by the real policies and by one without rhyme or reason: whatever it does, no pair may be lost or repeated.
Bala-Join by work may also choose between nodes and columns without reason, because on few nodes it uses no columns.
Batches are tried several times. Attempts of one start read more or fewer of their batch's signals early. Attempts of
different starts have other settings and versions, and find other rows in the same records.
"""

import json
import random
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, get_args
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from balajoin.checkpoints.leftovers import Entry
from balajoin.checkpoints.rehome import Rescale
from balajoin.compute.exchange import Outcome
from balajoin.compute.state import HEAD
from balajoin.control import encoding
from balajoin.core.envelope import Addressed
from balajoin.core.hashing import homes
from balajoin.core.matrix import matrix
from balajoin.core.messages import ANY_PLAN, Stamp
from balajoin.core.sides import SIDES, Side
from balajoin.core.spec import JoinSpec, JoinType
from balajoin.routing import grid, placement, policies
from balajoin.routing.policies import Assignment, HotKey, Policy, _by_work
from balajoin.routing.rule import Measure, PolicyName, SkewRule
from balajoin.routing.state import SourceState
from balajoin.testing import topics
from balajoin.testing.simulation import Sent, Simulation, Tables, Task
from examples import examples
from oracle import Result, Row, interval_join, join
from strategies import KEYS, SECOND, Memory, hash_of, results_of, rows_of, table

HOUR = 3600 * SECOND


@dataclass
class Whim:
    """A policy without reason: a key's row goes home, to some node, or as fragments to some column."""

    nodes: int
    seed: int
    broadcasts: bool
    choices: str  # of "home", "spread" and "fragment", their first letters
    calls: int = 0

    def assign(self, hashes):
        self.calls += 1
        rng = random.Random(f"{self.seed} {self.calls}")
        keys = sorted(set(hashes.tolist()))
        rows, targets, entries, fragments = [], [], [], []
        at_home = homes(hashes, self.nodes)
        height, width = matrix(self.nodes)

        def send(row, target, entry, fragment=False):
            rows.append(row)
            targets.append(target)
            entries.append(entry)
            fragments.append(fragment)

        for row, hash_ in enumerate(hashes.tolist()):
            choice = rng.choice(self.choices)
            if choice == "h":
                send(row, at_home[row], -1)
            elif choice == "s":
                send(row, rng.randrange(self.nodes), keys.index(hash_))
            else:
                column = rng.randrange(width)
                for line in range(height):
                    send(row, line * width + column, keys.index(hash_), fragment=True)
        return Assignment(
            np.array(targets, np.int32),
            np.array(entries, np.int32),
            np.array(keys, np.int64),
            np.array(rows, np.int32),
            np.array(fragments, np.bool_),
        )

    def note_build(self, hashes, times):
        pass

    def age(self, now_ms):
        pass

    def state(self) -> bytes:
        return str(self.calls).encode()

    def hot_keys(self) -> list[HotKey]:
        return []

    def loads(self) -> list[int]:
        return []


def as_of_version_1(record: Addressed) -> Addressed:
    """As an older balajoin wrote it, which did not name the plan."""
    note = json.loads(record.note)
    del note["plan"]
    return replace(record, note=json.dumps({**note, "version": 1}))


@dataclass(frozen=True)
class Send:
    side: Side
    partition: int
    key: bytes
    jitter: float
    early: float = 0.0
    """Where in the time that has passed since the batch before."""
    straggler: bool = False
    """Later than allowed, in schedules that have such rows."""


@dataclass(frozen=True)
class LostPlan:
    """A start that began a batch and was killed: with other settings than the one that then makes it anew."""

    seed: int
    choices: str
    lease_us: int
    lateness_us: int
    reached: float
    """The share of the nodes that had done their part."""
    announces: float
    phantoms: bool
    """Records that are rows to it, and dead letters to the next start."""
    old_version: bool


@dataclass(frozen=True)
class Batch:
    sends: tuple[Send, ...]
    passed: int
    lost_plans: tuple[LostPlan, ...] = ()
    lost_attempts: int = 0
    forget: bool = False
    """The local files."""
    rubbish: bool = False
    tick_ms: int | None = None
    """Nothing comes, and the clock stands there."""


@dataclass(frozen=True)
class Schedule:
    spec: JoinSpec
    lags: dict[Side, tuple[int, ...]]  # how far each source is behind
    lease_us: int
    stragglers: bool
    policy: PolicyName | None
    measure: Measure
    whimsical: bool
    """Which keys Bala-Join by work sends to columns of the matrix of nodes, follows from the rows of the batch only."""
    other_measure_from: int | None
    """Before this batch the join is stopped, and goes on with the other measure."""
    choices: str
    broadcasts: bool
    hashes: int
    seed: int
    part_bytes: int
    announces: float
    """The share of signals that reach an attempt in the batch that publishes them; the next one has all of them."""
    zombies: bool
    """Attempts that were given up publish even later."""
    ends_quietly: bool
    """Time goes on by ticks in the end, not by rows."""
    batches: tuple[Batch, ...]
    rescale: tuple[int, int] | None
    """Before this batch the join is stopped, and goes on with so many nodes."""


def usually(value, *others):
    return st.sampled_from([value, value, value, *others])


def lost_plans(choices: list[str]) -> st.SearchStrategy[tuple[LostPlan, ...]]:
    lost = st.builds(
        LostPlan,
        seed=st.integers(0, 1 << 20),
        choices=st.sampled_from(choices),
        lease_us=st.sampled_from([1, SECOND, HOUR]),
        lateness_us=st.sampled_from([0, 20 * SECOND]),
        reached=st.sampled_from([1.0, 0.5]),
        announces=st.sampled_from([1.0, 0.5]),
        phantoms=st.booleans(),
        old_version=st.booleans(),
    )
    return st.lists(lost, min_size=1, max_size=2).map(tuple)


@st.composite
def schedules(draw: st.DrawFn, type_: JoinType) -> Schedule:
    before = draw(st.sampled_from([10, -2, 0, 1, 30])) * SECOND
    width = draw(st.sampled_from([15, 0, 1, 40])) * SECOND
    choices = ["s", "hs", "hhhs", *(["f", "hsf", "sf"] if type_ == "inner" else [])]
    lags = st.sampled_from([0, 0, 3 * SECOND, 10 * SECOND, 30 * SECOND, HOUR])
    partitions: dict[Side, int] = {side: draw(st.integers(1, 3)) for side in SIDES}
    sends = st.sampled_from(SIDES).flatmap(
        lambda side: st.builds(
            Send,
            side=st.just(side),
            partition=st.integers(0, partitions[side] - 1),
            key=usually(KEYS[1], KEYS[0], KEYS[2], KEYS[4]),
            jitter=usually(0.0, 0.4, 1.0),
            early=usually(0.0, 0.5, 1.0),
            straggler=usually(False, False, True),
        )
    )
    batches = st.builds(
        Batch,
        sends=st.lists(sends, max_size=10).map(tuple),
        passed=st.sampled_from([SECOND, 0, 1, 3 * SECOND, 10 * SECOND, 40 * SECOND]),
        lost_plans=st.booleans().flatmap(lambda crashes: lost_plans(choices) if crashes else st.just(())),
        lost_attempts=usually(0, 0, 1, 2),
        forget=usually(False, False, True),
        rubbish=usually(False, True),
    )
    return Schedule(
        spec=JoinSpec(
            nodes=draw(st.sampled_from([2, 3, 4, 6])),
            before_us=before,
            after_us=width - before,
            lateness_us=draw(st.sampled_from([0, 2, 20])) * SECOND,
            idle_after_ms=1 << 40,
            sources=partitions,
            pins={},
            type=type_,
        ),
        lags={side: tuple(draw(lags) for _ in range(3)) for side in SIDES},
        lease_us=draw(st.sampled_from([1, SECOND, 20 * SECOND, HOUR])),
        stragglers=draw(usually(False, True)),
        policy=draw(usually(None, "bppr", "pnr", "prpd", "sfr", "flow-join", "bala-join", "bala-join")),
        measure=draw(st.sampled_from(get_args(Measure))),
        whimsical=draw(st.booleans()),
        other_measure_from=draw(st.none() | st.integers(1, 9)),
        choices=draw(st.sampled_from(choices)),
        broadcasts=draw(st.booleans()),
        hashes=draw(st.sampled_from([1 << 32, 1, 3])),
        seed=draw(st.integers(0, 1 << 20)),
        part_bytes=draw(st.sampled_from([60, 60, 1 << 20])),
        announces=draw(usually(1.0, 0.5, 0.0)),
        zombies=draw(st.booleans()),
        ends_quietly=draw(st.booleans()),
        batches=tuple(draw(st.lists(batches, min_size=1, max_size=12))),
        rescale=draw(st.none() | st.tuples(st.integers(1, 9), st.sampled_from([1, 2, 3, 4, 6]))),
    )


@st.composite
def rescaled_schedules(draw: st.DrawFn, type_: JoinType) -> Schedule:
    """Stopped while a hot key's build rows, which lag, are on their way to guests: some are old, some came just now."""
    before, width = draw(st.sampled_from([0, 1, 5])) * SECOND, draw(st.sampled_from([1, 3])) * SECOND
    partitions: dict[Side, int] = {"probe": draw(st.integers(1, 2)), "build": 1}
    sends = st.sampled_from(SIDES).flatmap(
        lambda side: st.builds(
            Send,
            side=st.just(side),
            partition=st.integers(0, partitions[side] - 1),
            key=usually(KEYS[1], KEYS[2]),
            jitter=usually(0.0, 0.9),
            early=usually(0.0, 0.5),
        )
    )
    batches = st.builds(
        Batch,
        sends=st.lists(sends, min_size=1, max_size=8).map(tuple),
        passed=st.sampled_from([SECOND, SECOND // 2, 2 * SECOND, 5 * SECOND]),
    )
    drawn = tuple(draw(st.lists(batches, min_size=4, max_size=10)))
    return Schedule(
        spec=JoinSpec(
            nodes=draw(st.sampled_from([2, 3, 4])),
            before_us=before,
            after_us=width - before,
            lateness_us=draw(st.sampled_from([0, 1])) * SECOND,
            idle_after_ms=1 << 40,
            sources=partitions,
            pins={},
            type=type_,
        ),
        lags={"probe": (0, 0), "build": (draw(st.sampled_from([0, 3, 8])) * SECOND,)},
        lease_us=draw(st.sampled_from([1, SECOND, HOUR])),
        stragglers=False,
        policy=draw(usually(None, "bala-join", "bala-join")),
        measure=draw(st.sampled_from(get_args(Measure))),
        whimsical=draw(st.booleans()),
        other_measure_from=draw(st.none() | st.integers(1, 9)),
        choices=draw(st.sampled_from(["s", "hs", "f"] if type_ == "inner" else ["s", "hs"])),
        broadcasts=draw(st.booleans()),
        hashes=1 << 32,
        seed=draw(st.integers(0, 1 << 20)),
        part_bytes=1 << 20,
        announces=draw(usually(1.0, 0.0)),
        zombies=False,
        ends_quietly=draw(st.booleans()),
        batches=drawn,
        rescale=(draw(st.integers(2, len(drawn) - 1)), draw(st.sampled_from([1, 2, 3, 4]))),
    )


@st.composite
def repeated_schedules(draw: st.DrawFn, type_: JoinType) -> Schedule:
    """A hot key moves between nodes while its rows expire, and nearly every task is tried more than once."""
    before, width = draw(st.sampled_from([0, 1, 5])) * SECOND, draw(st.sampled_from([1, 3, 60])) * SECOND
    partitions: dict[Side, int] = {"probe": draw(st.integers(1, 2)), "build": 1}
    choices = ["hs", "hhhs", "s", *(["hsf"] if type_ == "inner" else [])]
    sends = st.sampled_from(SIDES).flatmap(
        lambda side: st.builds(
            Send,
            side=st.just(side),
            partition=st.integers(0, partitions[side] - 1),
            key=usually(KEYS[1], KEYS[2]),
            jitter=st.just(0.0),
            early=usually(0.0, 0.5),
            straggler=usually(False, False, True),
        )
    )
    batches = st.builds(
        Batch,
        sends=st.lists(sends, max_size=6).map(tuple),
        passed=st.sampled_from([SECOND, SECOND // 2, 2 * SECOND, 5 * SECOND]),
        lost_plans=st.booleans().flatmap(lambda crashes: lost_plans(choices) if crashes else st.just(())),
        lost_attempts=st.integers(0, 2),
    )
    return Schedule(
        spec=JoinSpec(
            nodes=draw(st.sampled_from([2, 3, 4])),
            before_us=before,
            after_us=width - before,
            lateness_us=draw(st.sampled_from([0, 1])) * SECOND,
            idle_after_ms=1 << 40,
            sources=partitions,
            pins={},
            type=type_,
        ),
        lags={"probe": (0, 0), "build": (draw(st.sampled_from([0, 3])) * SECOND,)},
        lease_us=draw(st.sampled_from([1, SECOND, HOUR])),
        stragglers=draw(st.booleans()),
        policy=draw(usually(None, "bala-join", "bala-join")),
        measure=draw(st.sampled_from(get_args(Measure))),
        whimsical=draw(st.booleans()),
        other_measure_from=draw(st.none() | st.integers(1, 9)),
        choices=draw(st.sampled_from(choices)),
        broadcasts=False,
        hashes=1 << 32,
        seed=draw(st.integers(0, 1 << 20)),
        part_bytes=1 << 20,
        announces=draw(st.sampled_from([1.0, 0.5])),
        zombies=draw(st.booleans()),
        ends_quietly=False,
        batches=tuple(draw(st.lists(batches, min_size=4, max_size=10))),
        rescale=None,
    )


class Cluster(Simulation):
    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule.spec, schedule.lease_us, join="0b2f")
        self.schedule = schedule
        self.blocks = [Memory() for _ in range(self.spec.nodes)]
        self.rng = random.Random(schedule.seed)
        self.plans = 0
        self.is_ending = False
        self.stragglers: list[tuple[int, Addressed]] = []
        """What attempts that were given up publish later on, and in which batch."""
        self.outcomes: dict[int, Outcome] = {}
        self.found: Counter[Result] = Counter()
        self.late: set[tuple[Side, Row]] = set()
        self.batch_of: dict[tuple[Side, Row], int] = {}
        self.offsets: Counter[tuple[Side, int]] = Counter()
        self.clock = 1_000 * HOUR
        self.guests_pairs = 0
        self.by_work: set[bool] = set()
        """Whether rows that Bala-Join by work sent away were fragments."""
        self.measure = schedule.measure

    def policy(self, source: int, state: bytes | None) -> Policy:
        schedule, nodes = self.schedule, self.spec.nodes
        if self.is_ending:
            return policies.make("hash", nodes, source, SkewRule())
        if schedule.policy is None:
            return Whim(nodes, schedule.seed + source, schedule.broadcasts, schedule.choices, int(state or 0))
        skewed = tuple({hash_of(key, schedule.hashes) for key in KEYS[:2]})
        rule = SkewRule(
            keys=skewed,
            measure=self.measure,
            window_us=self.spec.before_us + self.spec.after_us,
            sources=self.spec.sources["build"],
            may_fragment=self.spec.type == "inner",
        )
        return policies.make(schedule.policy, nodes, source, rule, state)

    # --- one batch ----------------------------------------------------------------------------------------------------

    def next_plan(self) -> None:
        self.plans += 1
        self.spec = replace(self.spec, plan=f"plan-{self.plans}")

    def rows(self, sends: tuple[Send, ...], passed: int) -> dict[int, dict[Side, list[Row]]]:
        rows: dict[int, dict[Side, list[Row]]] = {}
        for send in sends:
            lag = self.schedule.lags[send.side][send.partition]
            time = self.clock - lag - int(send.jitter * self.spec.lateness_us) - int(send.early * passed)
            if send.straggler and self.schedule.stragglers:
                time -= self.spec.lateness_us + 20 * SECOND
            offset = self.offsets[send.side, send.partition]
            self.offsets[send.side, send.partition] += 1
            row = Row(send.key, time, b"v", send.partition, offset)
            rows.setdefault(send.partition, {}).setdefault(send.side, []).append(row)
            self.batch_of[send.side, row] = self.batch
        return rows

    def tables(self, rows: dict[int, dict[Side, list[Row]]]) -> dict[int, Tables]:
        return {
            number: {side: [table(some, self.schedule.hashes)] for side, some in by_side.items()}
            for number, by_side in rows.items()
        }

    def route(self, number: int, tables: Tables) -> Sent:
        sent = super().route(number, tables)
        if self.schedule.policy == "bala-join" and self.measure == "work":
            self.by_work |= {signal.fragment for signal in sent.signals}
        return sent

    def rescale(self, nodes: int) -> None:
        """What a stopped join left becomes one of so many nodes. What it published and nobody read stays there."""
        self.next_plan()
        change = Rescale(self.spec.nodes, self.batch - 1, replace(self.spec, nodes=nodes))
        scattered = defaultdict(list)
        for node, (state, blocks) in enumerate(zip(self.node_states, self.blocks, strict=True)):
            for number, block in ((HEAD, state), *dict.items(blocks)):
                if block is not None:
                    for target, part in change.scatter(Entry(node, number, block)):
                        scattered[target].append(Entry(node, number, part))
        if not scattered:
            return
        gathered = [dict(change.gather(scattered[node])) for node in range(nodes)]
        self.spec = change.spec
        self.node_states = [state.pop(HEAD) for state in gathered]
        self.blocks = [Memory(state) for state in gathered]
        self.outcomes = {}
        self.source_states = [state and self.rescaled(SourceState.read(state)).write() for state in self.source_states]
        self.batch = 0
        self.join += "'"
        owing = any(number < HEAD for state in gathered for number in state)
        event(f"rescaled, with results on their way: {owing}")
        if owing:
            self.topics.written += topics.of_wake_up(nodes)

    def rescaled(self, state: SourceState) -> SourceState:
        is_whim = self.schedule.policy is None
        return replace(state, leases={}, policy=b"0") if is_whim else state.rescaled(self.spec.nodes)

    def play(self, batch: Batch) -> None:
        self.clock += batch.passed
        self.topics.written += [record for due, record in self.stragglers if due == self.batch]
        if batch.tick_ms is not None:
            tick = Stamp(self.join, self.batch - 1, ANY_PLAN)
            self.topics.written += topics.of_tick(tick, self.spec.nodes, batch.tick_ms)
        unread = self.topics.take()
        rows = self.rows(batch.sends, batch.passed)
        for lost in batch.lost_plans:
            self.lose_plan(lost, rows, unread)
        tasks = self.tasks(unread, self.tables(rows), self.route)
        if batch.forget:
            shutil.rmtree(self.cache, ignore_errors=True)
        if batch.rubbish:
            self.litter()
        for task in tasks:
            for _ in range(batch.lost_attempts):
                self.topics.written += self.lose(self.told(task, self.schedule.announces))
            self.run(self.told(task, self.schedule.announces))
        self.batch += 1
        marks = {tuple(outcome.statistics.watermarks[side] for side in SIDES) for outcome in self.outcomes.values()}
        assert len(marks) <= 1, "nodes disagree about time"

    def told(self, task: Task, share: float) -> Task:
        """What one attempt at the task has: of the batch's signals, those whose place it was told."""
        return replace(task, announced=[record for record in task.announced if self.rng.random() < share])

    def lose(self, task: Task) -> list[Addressed]:
        """An attempt of which stays only what it had published, or a part of it; some of that comes late."""
        node = self.node(task.node, self.blocks[task.node].copy())
        results = node.process(self.batch, self.inputs(task, node).of_node())
        list(results)
        left: list[Addressed] = []
        for shipment in results.outcome.shipments:
            left += topics.of_shipment(self.stamp, shipment)[: self.rng.choice([0, 1, 2, None])]
        for report in results.outcome.reports:
            left += topics.of_report(self.stamp, report)[: self.rng.choice([0, 1, None])]
        if self.schedule.zombies and self.rng.random() < 0.3:
            due = self.batch + self.rng.randint(2, 4)
            self.stragglers += [(due, record) for record in left]
            return []
        return left

    def lose_plan(self, lost: LostPlan, rows: dict[int, dict[Side, list[Row]]], unread: list[Addressed]) -> None:
        """A start that dies in this batch. Only what it had published stays."""

        def route(number: int, tables: Tables) -> Sent:
            source = self.source(number)
            policy = Whim(self.spec.nodes, lost.seed + number, source.policy.broadcasts, lost.choices)
            other = replace(source, policy=policy, lateness_us=lost.lateness_us, lease_us=lost.lease_us)
            return Sent.by(other, self.now_ms, tables)

        begin = len(self.topics.written)
        for task in self.tasks(unread, self.tables(self.with_phantoms(rows) if lost.phantoms else rows), route):
            if self.rng.random() < lost.reached:
                self.topics.written += self.lose(self.told(task, lost.announces))
        if lost.old_version:
            self.topics.written[begin:] = map(as_of_version_1, self.topics.written[begin:])
        self.next_plan()

    def with_phantoms(self, rows: dict[int, dict[Side, list[Row]]]) -> dict[int, dict[Side, list[Row]]]:
        def doubled(rows: list[Row]) -> list[Row]:
            return [*rows, *(row._replace(offset=row.offset + 1_000_000) for row in rows)]

        return {number: {side: doubled(some) for side, some in by_side.items()} for number, by_side in rows.items()}

    def run(self, task: Task) -> Outcome:
        outcome = self.outcomes[task.node] = super().run(task)
        for late in outcome.late:
            self.late.update((late.side, row) for row in rows_of(late.rows))
        assert not outcome.signals, "an answer did not come within two batches"
        return outcome

    def take(self, node: int, results: Iterator[pa.Table]) -> None:
        pairs = results_of(results)
        self.found += pairs
        self.guests_pairs += sum(
            count
            for (probe, build), count in pairs.items()
            if probe and build and homes_of(probe, self.spec.nodes, self.schedule.hashes) != node
        )

    def litter(self) -> None:
        """Records that nobody of this join wrote, or that it wrote in a life it gave up."""
        for record in self.topics.written[-3:]:
            for old, new in ((f'"join":"{self.join}"', '"join":"other"'), (f'"batch":{self.batch}', '"batch":1000')):
                if record.note:
                    self.topics.written.append(replace(record, note=record.note.replace(old, new, 1)))
        for note in (None, "", "{", "[]", '{"version":1}', '{"version":2,"home":0,"node":0}'):
            section = self.rng.choice(["signal", "replica"])
            self.topics.written.append(Addressed(node=0, section=section, note=note, block=b"\x00\x01"))

    # --- the whole run ------------------------------------------------------------------------------------------------

    def play_all(self) -> None:
        at, nodes = self.schedule.rescale or (0, 0)
        for number, batch in enumerate(self.schedule.batches):
            if nodes and number == at:
                self.rescale(nodes)
            if number == self.schedule.other_measure_from:
                self.next_plan()
                self.measure = "rows" if self.measure == "work" else "work"
            self.play(batch)
        self.drain()
        assert self.schedule.stragglers or not self.late
        rows = {side: [row for at, row in self.batch_of if at == side] for side in SIDES}
        late = set(self.late)
        if self.schedule.ends_quietly:
            self.let_time_pass_quietly()
        self.check_all_ends()
        own = Counter({result: count for result, count in self.found.items() if b"last" not in map(_key, result)})
        self.check_results(rows, own, late)

    def drain(self) -> None:
        for _ in range(4):
            if self.topics.drained:
                return
            self.play(Batch((), 0))
        assert self.topics.drained, "the topics never become quiet"

    def let_time_pass_quietly(self) -> None:
        before = self.found.copy()
        for tick in range(1, 10):
            self.play(Batch((), 0, tick_ms=tick * self.spec.idle_after_ms))
        waiting = [outcome.statistics.waiting_rows for outcome in self.outcomes.values()]
        assert not any(waiting), "rows wait for ever when nothing comes"
        event(f"decided in silence: {bool(self.found - before)}")

    def check_results(self, rows: dict[Side, list[Row]], found: Counter[Result], late: set[tuple[Side, Row]]) -> None:
        kind, window = self.spec.kind, (self.spec.before_us, self.spec.after_us)
        on_time = {side: [row for row in rows[side] if (side, row) not in late] for side in SIDES}
        assert set(found.values()) <= {1}, "a result is there twice"
        if not late:
            assert set(found) == join(self.spec.type, rows["probe"], rows["build"], *window)
        pairs = interval_join(rows["probe"], rows["build"], *window)
        sure = interval_join(on_time["probe"], on_time["build"], *window)
        if kind.pairs:
            found_pairs = {(probe, build) for probe, build in found if probe and build}
            assert sure <= found_pairs <= pairs
            for at, side in enumerate(SIDES):
                alone = {result[at] for result in found if result[1 - at] is None}
                met = {pair[at] for pair in found_pairs}
                expected = set(on_time[side]) - met if side in kind.alone else set()
                assert alone == expected, "alone is who has met nobody, and is not late"
        else:
            given = {probe for probe, _ in found}
            met, surely_met = ({probe for probe, _ in some} for some in (pairs, sure))
            if kind.first_match:
                assert surely_met <= given <= met
            else:
                assert set(on_time["probe"]) - met <= given <= set(on_time["probe"]) - surely_met
        event(f"{self.spec.type}: pairs away from home: {'none' if not self.guests_pairs else 'some'}")
        event(f"by work, signals of fragments: {sorted(self.by_work)}")
        event(f"pairs: {'none' if not pairs else 'few' if len(pairs) < 10 else 'many'}")

    def check_all_ends(self) -> None:
        """Leases, promises and waits for them are over when time has gone on, and so are the rows."""
        everybody = tuple(
            Send(side, partition, b"last", 0.0) for side in SIDES for partition in range(self.spec.sources[side])
        )
        self.is_ending = True
        for _ in range(8 if "build" in self.spec.kind.alone else 3):
            self.play(Batch(everybody, 100 * HOUR))
        assert len(self.outcomes) == self.spec.nodes
        for number, blocks in enumerate(self.blocks):
            node = self.node(number, blocks)
            assert not node._home.leases
            assert not node._guest.held
            assert not node._guest.uncovered
            assert node.store.rows_of("fragment") == 0
        assert not any(self.source(number).leases for number in range(len(self.source_states)))


def _key(row: Row | None) -> bytes:
    return row.key if row else b""


def homes_of(row: Row, nodes: int, hashes: int) -> int:
    return int(homes(table([row], hashes).column("hash").to_numpy(), nodes)[0])


@settings(max_examples=examples(40))
@pytest.mark.parametrize("type_", get_args(JoinType))
@given(data=st.data())
def test_no_pair_is_lost_or_repeated_wherever_rows_are_sent(type_, data):
    play(data.draw(schedules(type_)))


@settings(max_examples=examples(30))
@pytest.mark.parametrize("type_", get_args(JoinType))
@given(data=st.data())
def test_no_pair_is_lost_or_repeated_by_a_rescale_while_rows_are_on_their_way(type_, data):
    play(data.draw(rescaled_schedules(type_)))


@settings(max_examples=examples(50))
@pytest.mark.parametrize("type_", get_args(JoinType))
@given(data=st.data())
def test_no_pair_is_lost_or_repeated_when_attempts_at_a_batch_differ(type_, data):
    play(data.draw(repeated_schedules(type_)))


@settings(max_examples=examples(50))
@pytest.mark.parametrize("type_", get_args(JoinType))
@given(data=st.data())
def test_no_pair_is_lost_or_repeated_when_keys_change_between_nodes_and_columns(type_, data):
    schedule = data.draw(st.one_of(schedules(type_), repeated_schedules(type_), rescaled_schedules(type_)))
    spec = replace(schedule.spec, nodes=data.draw(st.sampled_from([4, 6])))
    play(replace(schedule, spec=spec, policy="bala-join", measure="work", whimsical=True))


@settings(max_examples=examples(20))
@given(seed=st.integers(0, 1 << 20))
@example(seed=239)
def test_a_lost_attempt_ships_together_with_the_committed_one(seed):
    """An attempt that was given up answers a signal early and publishes late, in the batch of the committed answer."""
    key = KEYS[1]
    play(
        Schedule(
            spec=JoinSpec(3, SECOND, 0, 0, 1 << 40, {"probe": 1, "build": 1}, {}, "left"),
            lags={"probe": (0,), "build": (0,)},
            lease_us=1,
            stragglers=False,
            policy=None,
            measure="work",
            whimsical=False,
            other_measure_from=None,
            choices="hs",
            broadcasts=False,
            hashes=1 << 32,
            seed=seed,
            part_bytes=1 << 20,
            announces=0.5,
            zombies=True,
            ends_quietly=False,
            batches=(
                Batch((Send("build", 0, key, 0.0), Send("probe", 0, key, 0.0)), SECOND, lost_attempts=2),
                Batch((Send("probe", 0, key, 0.0),), SECOND),
            ),
            rescale=None,
        )
    )


def play(schedule: Schedule) -> None:
    with ExitStack() as patches:
        patches.enter_context(patch.object(encoding, "_MAX_PART_BYTES", schedule.part_bytes))
        patches.enter_context(patch.object(_by_work, "LEAST_SKEWED_ROWS", 1))  # a batch has few rows
        if schedule.whimsical:
            patches.enter_context(patch.object(grid, "_spares_copies", any_keys))
            patches.enter_context(patch.object(grid, "place_within", at_any_level))
        Cluster(schedule).play_all()


def any_keys(hot: grid.Hot, _: placement.Placement) -> NDArray[np.bool_]:
    return (hot.rows + hot.hashes) % 3 > 0


def at_any_level(limit: int, others: Any, keys: placement.SkewedKeys, weights: Any) -> placement.Placement:
    """Away from home, where the few rows of a batch would all have room, and in any order."""
    others = others.copy()
    others[homes(keys.hashes, len(others))] += 1 << 40
    order = np.argsort(keys.places % 7 + np.where(keys.places < 0, 100, 0), axis=1)
    return placement.place(others, replace(keys, places=np.take_along_axis(keys.places, order, axis=1)), weights, 0.0)
