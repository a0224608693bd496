"""All sources and nodes of a join in one process, without Spark or Kafka: the same logic, with exact counts.

As on Spark, state is written and restored at every batch, and what a batch publishes is read by the next. CPU time is a
node's own: that of the sources it holds (source i is at node i mod n) and of its part of the join. Decoding what comes
from Kafka and the blocks' way through the shuffle are left out: they are the same for all policies.
"""

import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from balajoin.compute.batch import Inputs
from balajoin.compute.exchange import Arrival
from balajoin.compute.node import Node
from balajoin.control.encoding import HEADER, read_part, shipment_records, signal_record
from balajoin.core.blocks import ROWS, longs
from balajoin.core.hashing import home
from balajoin.core.messages import Shipment, Signal, Stamp
from balajoin.core.sides import SECTIONS, Side, side_of
from balajoin.core.spec import JoinSpec
from balajoin.embedded.workload import zipf_keys
from balajoin.routing import policies
from balajoin.routing.rule import PolicyName, SkewRule
from balajoin.routing.source import Source

_VALUE = b'{"page":"/products/0123456789","user":"abcdefghijkl","n":12345}'
_BATCH_US = 5_000_000
_LEASE_US = 60_000_000  # balajoin's default: a lease outlives many batches
_JOIN = "model"


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

    @classmethod
    def of(cls, nodes: int) -> "Outcome":
        return cls(*([0] * nodes for _ in range(4)), [0.0] * nodes)

    @property
    def work(self) -> list[int]:
        """Rows taken in and pairs made: what a node's time goes into, without the noise of measuring it."""
        return [taken + pairs for taken, pairs in zip(self.taken, self.pairs, strict=True)]


def balance_factor(rows: Sequence[int]) -> float | None:
    return (max(rows) - min(rows)) / max(rows) if max(rows, default=0) else None


class _Blocks(dict[int, bytes]):
    """Spark's map state."""

    def put(self, number: int, block: bytes) -> None:
        self[number] = block

    def remove(self, number: int) -> None:
        del self[number]


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

    def table(numbers: NDArray[np.int64], batch: int, source: int) -> pa.Table:
        rows = len(numbers)
        times = batch * _BATCH_US + np.arange(rows) * _BATCH_US // max(rows, 1)
        columns = [
            pa.array(hashes[numbers]),
            pa.array(times),
            pa.array(np.full(rows, source, np.int32)),
            pa.array(batch * rows + np.arange(rows)),
            pa.array(names[numbers], pa.binary()),
            pa.array([_VALUE] * rows, pa.binary()),
        ]
        return pa.table(columns, schema=ROWS)

    def rows_of(side: NDArray[np.int64], batch: int, source: int) -> pa.Table:
        size = len(side) // s.batches
        return table(side[batch * size : (batch + 1) * size][source :: s.nodes], batch, source)

    batches: list[list[dict[Side, pa.Table]]] = [
        [{"probe": rows_of(probe, b, i), "build": rows_of(build, b, i)} for i in range(s.nodes)]
        for b in range(s.batches)
    ]
    counts = np.bincount(probe, minlength=s.keys)
    return Stream(batches, hashes[counts > s.threshold * len(probe)])


class Cluster:
    def __init__(self, scenario: Scenario, policy: PolicyName, rows: Stream, cache: Path) -> None:
        self._rows = rows
        self._nodes = scenario.nodes
        self._policy = policy
        self._rule = SkewRule(
            threshold=scenario.threshold,
            balance=scenario.balance,
            keys=tuple(rows.hot.tolist()) if policy == "bppr" else (),
            first_pass_rows=max(scenario.batch_rows // scenario.nodes, 1),
        )
        half = scenario.window_us // 2
        sources: dict[Side, int] = {"probe": self._nodes, "build": self._nodes}
        self._spec = JoinSpec(self._nodes, half, half, 0, 1 << 40, sources, {})
        self._cache = cache
        self._source_states: list[bytes | None] = [None] * self._nodes
        self._node_states: list[bytes | None] = [None] * self._nodes
        self._blocks = [_Blocks() for _ in range(self._nodes)]
        self._inbox: dict[int, Inputs] = defaultdict(Inputs)
        self._outbox: dict[int, Inputs] = defaultdict(Inputs)
        self.outcome = Outcome.of(self._nodes)

    def run(self) -> Iterator[None]:
        """A batch at a time; three more without rows, until the last signal is answered and the answer is joined."""
        for number, sources in enumerate([*self._rows.batches, [], [], []]):
            self._inbox, self._outbox = self._outbox, defaultdict(Inputs)
            for source, tables in enumerate(sources):
                self._route(Stamp(_JOIN, number), source, tables)
            for node in range(self._nodes):
                self._join(Stamp(_JOIN, number), node)
            yield

    def _route(self, stamp: Stamp, number: int, tables: dict[Side, pa.Table]) -> None:
        own = number % self._nodes
        with self._timed(own) as timed:
            written = self._source_states[number]
            make_policy = partial(policies.make, self._policy, self._nodes, number, self._rule)
            source = Source.restore(number, self._nodes, 0, _LEASE_US, make_policy, written)
            routed = source.route(stamp.batch * 1000, {side: [table] for side, table in tables.items()})
            self._source_states[number] = source.state()
        self.outcome.sources_busy += timed()
        for signal in routed.signals:
            self._signal(stamp, own, signal)
        for node, rows in enumerate(routed.statistics.skewed_rows):
            self.outcome.skewed[node] += rows
        for section in SECTIONS:
            side = side_of(section)
            for node, parcel in enumerate(routed.parcels[section]):
                self._inbox[node].arrivals.append(
                    Arrival(section, number, source.watermark(side), stamp.batch * 1000, parcel)
                )
                self.outcome.bytes[side] += sum(rows.nbytes for rows in parcel) if node != own else 0
                if side == "probe":
                    self.outcome.hot[node] += sum(int(np.isin(longs(r, "hash"), self._rows.hot).sum()) for r in parcel)

    def _join(self, stamp: Stamp, number: int) -> None:
        inputs = self._inbox[number]
        with self._timed(number):
            node = Node(self._spec, self._node_states[number], self._blocks[number], self._cache, number)
            results = node.process(stamp.batch, inputs.of_node())
            for _ in results:
                pass
            self._node_states[number] = results.outcome.state
            for shipment in results.outcome.shipments:
                self._ship(stamp, shipment)
        for signal in results.outcome.signals:
            self._signal(stamp, number, signal)
        noted, outcome = results.outcome.statistics, self.outcome
        outcome.taken[number] += noted.probe_rows + noted.build_rows + noted.replica_rows
        outcome.pairs[number] += noted.pairs
        outcome.pulls += noted.pulls
        outcome.replicas += noted.pulled_rows + noted.forwarded_rows

    def _signal(self, stamp: Stamp, own: int, signal: Signal) -> None:
        to = home(signal.hash, self._nodes)
        self._outbox[to].signals.append(signal)
        self.outcome.signals += 1
        self.outcome.bytes["signals"] += len(signal_record(stamp, to, signal).value or b"") if to != own else 0

    def _ship(self, stamp: Stamp, shipment: Shipment) -> None:
        for record in shipment_records(stamp, shipment):
            header = dict(record.headers)[HEADER]
            self._outbox[shipment.node].parts.append(read_part(header.decode(), record.value))
            self.outcome.bytes["signals"] += len(header)
        self.outcome.bytes["replicas"] += sum(rows.nbytes for rows in shipment.rows)

    @contextmanager
    def _timed(self, node: int) -> Iterator[Callable[[], float]]:
        took = 0.0
        begin = time.process_time()
        yield lambda: took
        took = time.process_time() - begin
        self.outcome.busy[node] += took


@contextmanager
def cluster(scenario: Scenario, policy: PolicyName) -> Iterator[Cluster]:
    memory_disk = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="balajoin-model-", dir=memory_disk) as cache:
        yield Cluster(scenario, policy, stream(scenario), Path(cache))


def simulate(scenario: Scenario, policy: PolicyName) -> Outcome:
    with cluster(scenario, policy) as model:
        for _ in model.run():
            pass
        return model.outcome
