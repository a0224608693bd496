"""A join in one process, by `balajoin.testing`, with exact counts of what its sources and nodes do.

CPU time is a node's own: that of the sources it holds (source i is at node i mod n) and of its part of the join.
Decoding what comes from Kafka and the blocks' way through the shuffle are left out: they are the same for all policies.
All signals are read by the next batch, and none by their own.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from balajoin.compute import exchange
from balajoin.core.blocks import ROWS, longs
from balajoin.core.messages import Signal
from balajoin.core.sides import Side
from balajoin.core.spec import JoinSpec
from balajoin.embedded.workload import zipf_keys
from balajoin.routing import policies
from balajoin.routing.policies import Policy
from balajoin.routing.rule import Measure, PolicyName, SkewRule
from balajoin.testing import topics
from balajoin.testing.simulation import Sent, Simulation, Tables, Task

_VALUE = b'{"page":"/products/0123456789","user":"abcdefghijkl","n":12345}'
_BATCH_US = 5_000_000
_LEASE_US = 60_000_000  # balajoin's default: a lease outlives many batches


@dataclass(frozen=True)
class Scenario:
    nodes: int
    zipf: float | None
    """Of the probe keys; None: all rows have one key."""
    build_zipf: float | None = None
    """Of the build keys; None: all keys equally often, in turn."""
    ratio: float = 2 / 3
    window_us: int = 3_600_000_000
    """A pair may be so far apart: by default any two rows."""
    threshold: float = 0.01
    balance: float = 0.2
    batches: int = 8
    batch_rows: int = 100_000
    """Of the probe side, of all sources."""
    keys: int = 100_000
    seed: int = 0
    """Of the keys' hashes, and so of their homes."""
    moves_after: int | None = None
    """After so many batches other keys are hot; None: never."""
    measure: Measure = "work"
    pair_cost: float = 1.0
    by_key: bool = False
    """Whether a key's rows are all in one partition, as Kafka's own partitioner puts them; else rows come in turn."""

    @property
    def probe_rows(self) -> int:
        return self.batches * self.batch_rows

    @property
    def rows(self) -> int:
        return self.batches * (self.batch_rows + int(self.batch_rows * self.ratio))


@dataclass
class Outcome:
    """Lists are by node."""

    taken: list[int]
    """Rows that came to the node: probe, build and replicas."""
    pairs: list[int]
    hot: list[int]
    """Probe rows of hot keys, in truth: with a share of all probe rows above the threshold."""
    skewed: list[int]
    """Probe rows that the policy sent as skewed."""
    busy: list[float]
    """CPU seconds."""
    sources_busy: float = 0.0
    bytes: Counter[str] = field(default_factory=Counter)
    """By kind, uncompressed, without what stays at its node."""
    signals: int = 0
    pulls: int = 0
    replicas: int = 0
    fragments: int = 0
    """Copies of probe rows: what came to nodes beyond the first of each row."""
    by_batch: list[list[tuple[int, int]]] = field(default_factory=list)
    """Rows taken and pairs made in each batch, by node."""

    @classmethod
    def of(cls, nodes: int) -> "Outcome":
        return cls(*([0] * nodes for _ in range(4)), [0.0] * nodes)

    @property
    def work(self) -> list[float]:
        return self.work_at(1)

    def work_at(self, pair_cost: float) -> list[float]:
        """Rows taken in and pairs made: what a node's time goes into, without the noise of measuring it."""
        return [taken + pair_cost * pairs for taken, pairs in zip(self.taken, self.pairs, strict=True)]


def balance_factor(rows: Sequence[int]) -> float | None:
    return (max(rows) - min(rows)) / max(rows) if max(rows, default=0) else None


@dataclass(frozen=True)
class Stream:
    batches: list[list[dict[Side, pa.Table]]]
    """By batch and source."""
    hot: NDArray[np.int64]
    """Hashes of the hot keys."""


@lru_cache(maxsize=2)
def stream(scenario: Scenario) -> Stream:
    s = scenario
    hashes = np.random.default_rng(s.seed).integers(-(1 << 63), 1 << 63, s.keys)
    names = np.array([b"k%08d" % number for number in range(s.keys)], object)
    probe = zipf_keys(s.probe_rows, s.keys, s.zipf, 1) if s.zipf is not None else np.zeros(s.probe_rows, np.int64)
    build_rows = s.rows - s.probe_rows
    in_turn = np.random.default_rng(3).permutation(build_rows) % s.keys
    build = in_turn if s.build_zipf is None else zipf_keys(build_rows, s.keys, s.build_zipf, 2)
    probe, build = (_moved(side, s) for side in (probe, build))

    def table(numbers: NDArray[np.int64], batch: int, source: int) -> pa.Table:
        rows = len(numbers)
        times = batch * _BATCH_US + np.arange(rows) * _BATCH_US // max(rows, 1)
        columns = [
            pa.array(hashes[numbers]),
            pa.array(times),
            pa.array(np.full(rows, source, np.int32)),
            pa.array(batch * s.rows + np.arange(rows)),
            pa.array(names[numbers], pa.binary()),
            pa.array([_VALUE] * rows, pa.binary()),
        ]
        return pa.table(columns, schema=ROWS)

    def rows_of(side: NDArray[np.int64], batch: int, source: int) -> pa.Table:
        size = len(side) // s.batches
        rows = side[batch * size : (batch + 1) * size]
        mine = rows[hashes[rows] // 7 % s.nodes == source] if s.by_key else rows[source :: s.nodes]
        return table(mine, batch, source)

    batches: list[list[dict[Side, pa.Table]]] = [
        [{"probe": rows_of(probe, b, i), "build": rows_of(build, b, i)} for i in range(s.nodes)]
        for b in range(s.batches)
    ]
    counts = np.bincount(probe, minlength=s.keys)
    return Stream(batches, hashes[counts > s.threshold * len(probe)])


def _moved(numbers: NDArray[np.int64], s: Scenario) -> NDArray[np.int64]:
    """The same keys, or after each `moves_after` batches the next ones."""
    if s.moves_after is None:
        return numbers
    batch = np.arange(len(numbers)) * s.batches // max(len(numbers), 1)
    return (numbers + batch // s.moves_after * 1_000) % s.keys


class Cluster(Simulation):
    def __init__(self, scenario: Scenario, policy: PolicyName) -> None:
        nodes, half = scenario.nodes, scenario.window_us // 2
        super().__init__(
            JoinSpec(nodes, half, half, 0, 1 << 40, {"probe": nodes, "build": nodes}, {}), _LEASE_US, join="model"
        )
        self._rows = stream(scenario)
        self._policy = policy
        self._rule = SkewRule(
            threshold=scenario.threshold,
            balance=scenario.balance,
            keys=tuple(self._rows.hot.tolist()) if policy == "bppr" else (),
            first_pass_rows=max(scenario.batch_rows // nodes, 1),
            measure=scenario.measure,
            pair_cost=scenario.pair_cost,
            window_us=scenario.window_us,
            sources=nodes,
        )
        self.outcome = Outcome.of(nodes)

    def steps(self) -> Iterator[None]:
        """A batch at a time; three more without rows, until the last signal is answered and the answer is joined."""
        for number, sources in enumerate([*self._rows.batches, [], [], []]):
            self.now_ms = number * 1000
            self.outcome.by_batch.append([(0, 0)] * self.spec.nodes)
            self.step(
                {source: {side: [rows] for side, rows in tables.items()} for source, tables in enumerate(sources)}
            )
            self.topics.forget()
            yield

    def policy(self, source: int, state: bytes | None) -> Policy:
        return policies.make(self._policy, self.spec.nodes, source, self._rule, state)

    def take(self, node: int, results: Iterator[pa.Table]) -> None:
        for _ in results:
            pass

    def route(self, number: int, tables: Tables) -> Sent:
        own, outcome = number % self.spec.nodes, self.outcome
        with self._timed(own) as timed:
            sent = super().route(number, tables)
        outcome.sources_busy += timed()
        self._count_signals(own, sent.signals)
        outcome.fragments -= sum(rows.num_rows for rows in tables["probe"])
        for node, arrivals in enumerate(sent.arrivals):
            outcome.skewed[node] += sent.statistics.skewed_rows[node]
            for arrival in arrivals:
                outcome.bytes[arrival.side] += sum(rows.nbytes for rows in arrival.rows) if node != own else 0
                if arrival.side == "probe":
                    outcome.fragments += sum(rows.num_rows for rows in arrival.rows)
                    hot = (np.isin(longs(rows, "hash"), self._rows.hot) for rows in arrival.rows)
                    outcome.hot[node] += sum(int(is_hot.sum()) for is_hot in hot)
        return sent

    def run(self, task: Task) -> exchange.Outcome:
        published = len(self.topics.written)
        with self._timed(task.node):
            done = super().run(replace(task, announced=()))
        noted, outcome = done.statistics, self.outcome
        self._count_signals(task.node, done.signals)
        shipped = [record for record in self.topics.written[published:] if record.section == "replica"]
        outcome.bytes["signals"] += sum(len(record.note or "") for record in shipped)
        outcome.bytes["replicas"] += sum(rows.nbytes for shipment in done.shipments for rows in shipment.rows)
        outcome.pairs[task.node] += noted.pairs
        rows = noted.probe_rows + noted.build_rows + noted.replica_rows
        outcome.taken[task.node] += rows
        outcome.by_batch[-1][task.node] = (rows, noted.pairs)
        outcome.pulls += noted.pulls
        outcome.replicas += noted.pulled_rows + noted.forwarded_rows
        return done

    def _count_signals(self, own: int, signals: Sequence[Signal]) -> None:
        self.outcome.signals += len(signals)
        records = [topics.of_signal(self.stamp, self.spec.nodes, signal) for signal in signals]
        self.outcome.bytes["signals"] += sum(len(record.note or "") for record in records if record.node != own)

    @contextmanager
    def _timed(self, node: int) -> Iterator[Callable[[], float]]:
        took = 0.0
        begin = time.process_time()
        yield lambda: took
        took = time.process_time() - begin
        self.outcome.busy[node] += took


def simulate(scenario: Scenario, policy: PolicyName) -> Outcome:
    cluster = Cluster(scenario, policy)
    for _ in cluster.steps():
        pass
    return cluster.outcome
