"""The router of one source, without Spark: (state, new blocks) → (a parcel for every node, signals, state).

A source is one partition number, of both topics: the paper's data node, with its shard of each table.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from balajoin.core.blocks import concat, longs, partition_by
from balajoin.core.codec import refusing_damage
from balajoin.core.event_time import BEGINNING
from balajoin.core.hashing import homes
from balajoin.core.kernels import kernel
from balajoin.core.messages import Lease, Signal, shown_key
from balajoin.core.sides import SECTIONS, SIDES, Section, Side
from balajoin.routing.policies import Assignment, Policy
from balajoin.routing.state import SourceState
from balajoin.routing.statistics import SourceStatistics

Parcels = dict[Section, list[list[pa.Table]]]
"""The rows of each section for each node, in their order."""


@dataclass(frozen=True)
class RoutingOutcome:
    """What a source sends in one batch."""

    parcels: Parcels
    signals: Sequence[Signal]
    """Signals to the homes of skewed keys."""
    statistics: SourceStatistics


@dataclass
class Source:
    number: int
    nodes: int
    lateness_us: int
    lease_us: int
    policy: Policy
    latest: dict[Side, int] = field(default_factory=lambda: dict.fromkeys(SIDES, BEGINNING))
    """The newest time of each side."""
    leases: dict[Lease, int] = field(default_factory=dict)
    """For each lease, the time up to which the home knows that the node gets probe rows of the hash."""

    @classmethod
    def restore(
        cls,
        number: int,
        nodes: int,
        lateness_us: int,
        lease_us: int,
        make_policy: Callable[[bytes | None], Policy],
        state: bytes | None,
    ) -> "Source":
        if state is None:
            return cls(number, nodes, lateness_us, lease_us, make_policy(None))
        written = SourceState.read(state)
        with refusing_damage("source"):
            policy = make_policy(written.policy)
        return cls(number, nodes, lateness_us, lease_us, policy, dict(written.latest), dict(written.leases))

    def state(self) -> bytes:
        return SourceState(self.latest, self.leases, self.policy.state()).write()

    def watermark(self, side: Side) -> int:
        """No row of this source is expected to be older. Every node gets the watermark in every batch."""
        latest = self.latest[side]
        return latest - self.lateness_us if latest > BEGINNING else BEGINNING

    def route(self, now_ms: int, blocks: Mapping[Side, Sequence[pa.Table]]) -> RoutingOutcome:
        before = self.latest["probe"]
        for side, tables in blocks.items():
            newest = max((int(longs(table, "time").max()) for table in tables), default=BEGINNING)
            self.latest[side] = max(self.latest[side], newest)
        parcels: Parcels = {section: [[] for _ in range(self.nodes)] for section in SECTIONS}
        self.policy.age(now_ms)
        build = blocks.get("build", ())
        if build:
            self.policy.note_build(
                *(np.concatenate([longs(block, name) for block in build]) for name in ("hash", "time"))
            )
        for block in build:
            self._send(parcels["build"], block, homes(longs(block, "hash"), self.nodes))
        reached: dict[Lease, int] = defaultdict(lambda: BEGINNING)
        samples: dict[int, bytes] = {}
        skewed_rows = [0] * self.nodes
        probe = blocks.get("probe", ())
        if probe:
            assigned = self.policy.assign(np.concatenate([longs(block, "hash") for block in probe]))
            skewed_rows = np.bincount(assigned.targets[assigned.entries >= 0], minlength=self.nodes).tolist()
            for block, assignment in zip(probe, _by_block(assigned, [block.num_rows for block in probe]), strict=True):
                self._send_probe(parcels, block, assignment)
                self._note_reached(block, assignment, reached, samples)
        advanced = self.latest["probe"] - before if before > BEGINNING else 0
        signals = self._signals(reached, samples, max(self.lease_us, advanced))
        hot_keys = [
            replace(hot, key=shown_key(samples[hot.hash])) if hot.hash in samples else hot
            for hot in self.policy.hot_keys()
        ]
        statistics = SourceStatistics(
            self.number, skewed_rows, loads=self.policy.loads(), signals=len(signals), hot_keys=hot_keys
        )
        return RoutingOutcome(parcels, signals, statistics)

    def _send_probe(self, parcels: Parcels, block: pa.Table, assignment: Assignment) -> None:
        sent = block if assignment.rows is None else block.take(pa.array(assignment.rows))
        fragments = assignment.fragments
        if fragments is None or not fragments.any():
            self._send(parcels["probe"], sent, assignment.targets)
            return
        shares: tuple[tuple[Section, NDArray[np.bool_]], ...] = (("probe", ~fragments), ("fragment", fragments))
        for section, mine in shares:
            if mine.any():
                self._send(parcels[section], concat([sent.filter(pa.array(mine))]), assignment.targets[mine])

    def _send(self, parcels: list[list[pa.Table]], rows: pa.Table, targets: NDArray[np.int32]) -> None:
        for parcel, part in zip(parcels, partition_by(rows, targets, self.nodes), strict=True):
            if part.num_rows:
                parcel.append(part)

    def _note_reached(
        self, block: pa.Table, assignment: Assignment, reached: dict[Lease, int], samples: dict[int, bytes]
    ) -> None:
        """Notes the newest time of each skewed key at each node that this batch sends it to, except its home."""
        keys = assignment.keys
        if not len(keys):
            return
        times, rows = longs(block, "time"), assignment.rows
        sent_times = times if rows is None else times[rows]
        fragments = assignment.fragments
        if fragments is None:
            fragments = np.zeros(len(sent_times), np.bool_)
        newest, sample = _newest_kernel(
            assignment.entries, assignment.targets, sent_times, fragments, len(keys), self.nodes
        )
        at_home = homes(keys, self.nodes)
        for entry, hash_ in enumerate(keys.tolist()):
            if sample[entry] < 0:
                continue
            row = int(sample[entry]) if rows is None else int(rows[sample[entry]])
            samples[hash_] = block.column("key")[row].as_py()
            for fragment in (False, True):
                times_by_node = newest[int(fragment), entry]
                if self.policy.broadcasts and (times_by_node > BEGINNING).any():
                    times_by_node = np.full(self.nodes, times_by_node.max())
                for node in np.flatnonzero(times_by_node > BEGINNING).tolist():
                    if node != at_home[entry]:
                        lease = (hash_, node, fragment)
                        reached[lease] = max(reached[lease], int(times_by_node[node]))

    def _signals(self, reached: Mapping[Lease, int], samples: Mapping[int, bytes], lease_us: int) -> list[Signal]:
        """Renews a lease when half of its time has passed, so that no row has to wait for its grant."""
        until = self.latest["probe"] + lease_us
        signals = []
        for lease, newest in sorted(reached.items()):
            if newest > self.leases.get(lease, BEGINNING) - self.lease_us // 2:
                hash_, node, fragment = lease
                self.leases[lease] = until
                signals.append(Signal(hash_, node, until, fragment, key=samples[hash_]))
        floor = self.watermark("probe")
        self.leases = {lease: until for lease, until in self.leases.items() if until >= floor}
        return signals


def _by_block(batch: Assignment, counts: Sequence[int]) -> Iterator[Assignment]:
    """Splits an assignment by block: a policy assigns all rows of a batch at once, but rows are sent block by block."""
    if len(counts) == 1:
        yield batch
        return
    ends = np.cumsum(counts)
    for start, end in zip(ends - counts, ends, strict=True):
        at = slice(start, end) if batch.rows is None else slice(*np.searchsorted(batch.rows, (start, end)))
        yield Assignment(
            batch.targets[at],
            batch.entries[at],
            batch.keys,
            None if batch.rows is None else batch.rows[at] - np.int32(start),
            None if batch.fragments is None else batch.fragments[at],
        )


@kernel
def _newest_kernel(
    entries: NDArray[np.int32],
    targets: NDArray[np.int32],
    times: NDArray[np.int64],
    fragments: NDArray[np.bool_],
    keys: int,
    nodes: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    newest = np.full((2, keys, nodes), BEGINNING, np.int64)
    sample = np.full(keys, -1, np.int64)
    for i in range(len(entries)):
        entry = entries[i]
        if entry >= 0:
            kind = 1 if fragments[i] else 0
            if times[i] > newest[kind, entry, targets[i]]:
                newest[kind, entry, targets[i]] = times[i]
            sample[entry] = i
    return newest, sample
