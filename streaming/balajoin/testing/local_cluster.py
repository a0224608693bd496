"""The whole join in one process, for tests: rows in, results out, without Spark and Kafka."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from balajoin.compute.exchange import Outcome
from balajoin.config import durations
from balajoin.core.blocks import ROWS
from balajoin.core.messages import ANY_PLAN, Stamp
from balajoin.core.sides import SIDES, Side
from balajoin.core.spec import JoinSpec
from balajoin.routing import policies
from balajoin.routing.policies import Policy
from balajoin.routing.rule import SkewRule
from balajoin.testing import topics
from balajoin.testing.simulation import Simulation, Tables, Task

if TYPE_CHECKING:  # nothing here needs pydantic
    from balajoin.config.models import JoinSettings

_BATCH_MS = 1_000  # as the service's trigger by default

MakePolicy = Callable[[int, bytes | None], Policy]
"""Of a source's number, and of the policy's state after the last batch."""


@dataclass(frozen=True)
class Row:
    """A row of one side. `time` is in seconds since the epoch, and counts in microseconds."""

    key: str | bytes
    time: float
    value: str | bytes | None = None
    partition: int = 0


class Result(NamedTuple):
    """A pair, or one row: without a match in outer joins, and always in semi and anti joins."""

    probe: Row | None
    build: Row | None


class LocalCluster(Simulation):
    """Runs all sources and nodes of a join: the same code as on Spark, one batch at a time.

    `sources` is the number of partitions of each input topic. `settings` are those of `balajoin.join`; their `policy`
    routes unless `policy` makes another. Keys have other homes than on Spark, which hashes them in its own way.
    """

    def __init__(self, settings: "JoinSettings", *, sources: int = 1, policy: MakePolicy | None = None) -> None:
        spec, skew = JoinSpec.of(settings, {}, dict.fromkeys(SIDES, sources)), settings.skew
        super().__init__(spec, skew.lease_ms * 1000)
        rule = SkewRule(
            threshold=skew.threshold,
            balance=skew.balance,
            counters=skew.counters,
            half_life_ms=skew.half_life_ms,
            keys=tuple(_hash(key.encode()) for key in skew.keys),
            first_pass_rows=skew.first_pass_rows,
            measure=skew.measure,
            pair_cost=skew.pair_cost if spec.kind.pairs else 0,
            weights=skew.weights,
            window_us=spec.before_us + spec.after_us,
            sources=sources,
            may_fragment=not spec.kind.awaited,
        )
        self._make_policy: MakePolicy = policy or (
            lambda source, state: policies.make(settings.policy, settings.nodes, source, rule, state)
        )
        self._fed: dict[Side, list[list[Row]]] = {side: [[] for _ in range(sources)] for side in SIDES}
        """Rows by partition and offset."""
        self._waiting = [0] * spec.nodes
        self._results: list[Result] = []
        self.late: dict[Side, list[Row]] = {side: [] for side in SIDES}
        """Rows that came later than `lateness` allows: they go to the late topic."""
        self.probe_rows = [0] * spec.nodes
        """How many probe rows each node has got."""

    # --- for users ----------------------------------------------------------------------------------------------------

    def feed(self, probe: Iterable[Row] = (), build: Iterable[Row] = ()) -> list[Result]:
        """One batch with these rows, a second after the batch before. Returns its results, in no particular order.

        Pairs of a skewed key may come one batch later: its build rows are on their way to another node. See `drain`.
        """
        self.now_ms += _BATCH_MS
        by_source: dict[int, dict[Side, list[pa.Table]]] = {}
        fed: dict[Side, Iterable[Row]] = {"probe": probe, "build": build}
        for side, rows in fed.items():
            for partition, table in self._tables(side, list(rows)):
                by_source.setdefault(partition, {})[side] = [table]
        return self._batch(by_source)

    def drain(self) -> list[Result]:
        """Batches without rows, until nothing is on its way between nodes. Returns their results."""
        results = []
        while not self.topics.drained:
            results += self._batch({})
        return results

    def idle(self, duration: str) -> list[Result]:
        """No row comes for this long ("10 min"): rows may turn out to have no match. Returns all results meanwhile.

        As in production time goes on when all partitions have been silent for `idle_after`, as fast as the clock does.
        """
        end = self.now_ms + durations.parse_ms(duration)
        results = self.drain()
        while any(self._waiting) and self.now_ms < end:
            # A longer gap between two batches would count as little more than this: see `core.event_time`.
            self.now_ms = min(end, self.now_ms + max(1, self.spec.idle_after_ms // 2))
            tick = Stamp(self.join, self.batch - 1, ANY_PLAN)
            self.topics.written += topics.of_tick(tick, self.spec.nodes, self.now_ms)
            results += self.drain()
        self.now_ms = end
        return results

    # --- parts of the simulation --------------------------------------------------------------------------------------

    def policy(self, source: int, state: bytes | None) -> Policy:
        return self._make_policy(source, state)

    def take(self, node: int, results: Iterator[pa.Table]) -> None:
        for table in results:
            probe, build = (self._rows_at(side, table, f"{side}_") for side in SIDES)
            self._results += map(Result, probe, build)

    def run(self, task: Task) -> Outcome:
        outcome = super().run(task)
        self._waiting[task.node] = outcome.statistics.waiting_rows
        self.probe_rows[task.node] += outcome.statistics.probe_rows
        for late in outcome.late:
            self.late[late.side] += filter(None, self._rows_at(late.side, late.rows))
        return outcome

    def _batch(self, rows: Mapping[int, Tables]) -> list[Result]:
        self._results = []
        self.step(rows)
        return self._results

    def _tables(self, side: Side, rows: list[Row]) -> Iterator[tuple[int, pa.Table]]:
        partitions = range(len(self._fed[side]))
        for row in rows:
            if row.partition not in partitions:
                raise ValueError(f"{row} is of a partition that is not there: there are {len(partitions)} sources")
        for partition in partitions:
            mine = [row for row in rows if row.partition == partition]
            if mine:
                yield partition, _table(mine, first_offset=len(self._fed[side][partition]))
                self._fed[side][partition] += mine

    def _rows_at(self, side: Side, table: pa.Table, prefix: str = "") -> list[Row | None]:
        """The rows that were fed, by the columns of their places."""
        places = zip(*(table.column(f"{prefix}{name}").to_pylist() for name in ("partition", "offset")), strict=True)
        return [None if offset is None else self._fed[side][partition][offset] for partition, offset in places]


def _table(rows: list[Row], first_offset: int) -> pa.Table:
    keys = [_bytes(row.key) for row in rows]
    columns = {
        "hash": map(_hash, keys),
        "time": (round(row.time * 1_000_000) for row in rows),
        "partition": (row.partition for row in rows),
        "offset": range(first_offset, first_offset + len(rows)),
        "key": keys,
        "value": (None if row.value is None else _bytes(row.value) for row in rows),
    }
    return pa.table([pa.array(columns[each.name], each.type) for each in ROWS], schema=ROWS)


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _hash(key: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little", signed=True)
