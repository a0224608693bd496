"""A node as the home of keys: it answers signals with the build rows it has, and forwards those that come later.

A lease (x, j) ends when the build watermark has passed `until + after`: then no build row on time can match a probe row
of x at j. All nodes have the same watermarks, so a lease ends without a clock or a message.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from balajoin.compute.store import BlockStore
from balajoin.core.blocks import longs
from balajoin.core.event_time import BEGINNING
from balajoin.core.hashing import home
from balajoin.core.matrix import fragment_of, matrix
from balajoin.core.messages import Grant, Lease, Shipment, Signal


@dataclass
class Home:
    number: int
    nodes: int
    leases: dict[Lease, int] = field(default_factory=dict)
    forwarded_rows: int = 0
    pulled_rows: int = 0
    pulls: int = 0
    foreign_signals: int = 0
    incomplete_pulls: int = 0
    """Repeated signals that came when rows of the answer may have expired."""

    def __post_init__(self) -> None:
        self._outgoing: dict[int, list[pa.Table]] = defaultdict(list)
        self._grants: dict[int, list[Grant]] = defaultdict(list)
        self._pulled: dict[int, set[int]] = defaultdict(set)

    def forward(self, build: pa.Table) -> None:
        """Sends new build rows to every node that has a lease on their key."""
        leased = np.array(sorted({hash_ for hash_, _, _ in self.leases}), np.int64)
        wanted = np.isin(longs(build, "hash"), leased)
        if not wanted.any():
            return
        rows = build.filter(pa.array(wanted)).combine_chunks()
        for node in sorted({node for _, node, _ in self.leases}):
            whole, fragments = (self._hashes(node, fragment) for fragment in (False, True))
            share = self._share(rows, node, whole, fragments)
            if share.num_rows:
                self.forwarded_rows += share.num_rows
                self._outgoing[node].append(share)

    def answer(
        self, signals: Iterable[Signal], store: BlockStore, probe_watermark: int, kept_from: int, before_us: int
    ) -> None:
        """Grants every signal that no lease covers yet. A new lease pulls its key's build rows, including this batch's.

        It pulls exactly the rows that a probe row from `probe_watermark` on can match. A guest that got such a row
        before still stores it, and so recognizes it. A guest that asks again names an older time, from which on it has
        dropped nothing. This home still has all rows that a probe row from `kept_from` on can match.
        """
        pulls: dict[tuple[int, int], dict[bool, set[int]]] = defaultdict(lambda: {False: set(), True: set()})
        for signal in signals:
            if not self._is_mine(signal):
                self.foreign_signals += 1
                continue
            lease = (signal.hash, signal.node, signal.fragment)
            if self.leases.get(lease, BEGINNING) >= signal.until and not signal.again:
                continue
            self.incomplete_pulls += signal.again and signal.since < kept_from
            if lease not in self.leases or signal.again:
                oldest = min(signal.since, probe_watermark) if signal.again else probe_watermark
                pulls[signal.node, oldest - before_us][signal.fragment].add(signal.hash)
            self.leases[lease] = max(signal.until, self.leases.get(lease, signal.until))
            self._grants[signal.node].append(Grant(signal.hash, self.leases[lease], signal.fragment))
        for (node, oldest), by_kind in sorted(pulls.items()):
            self._pull(node, oldest, by_kind[False], by_kind[True], store)

    def _pull(self, node: int, oldest: int, whole: set[int], fragments: set[int], store: BlockStore) -> None:
        self.pulls += len(whole | fragments)
        self._pulled[node] |= whole | fragments
        whole_hashes, fragment_hashes = (np.array(sorted(hashes), np.int64) for hashes in (whole, fragments))
        wanted = np.union1d(whole_hashes, fragment_hashes)
        for rows in (*store.rows_with("build", wanted), *store.rows_with("unmatched_build", wanted)):
            recent = rows.filter(pa.array(longs(rows, "time") >= oldest)).combine_chunks()
            share = self._share(recent, node, whole_hashes, fragment_hashes)
            if share.num_rows:
                self.pulled_rows += share.num_rows
                self._outgoing[node].append(share)

    def shipments(self) -> Iterator[Shipment]:
        for node in sorted(self._outgoing.keys() | self._grants.keys()):
            yield Shipment(
                self.number, node, self._outgoing[node], self._grants[node], sorted(self._pulled.get(node, ()))
            )

    def end_leases(self, build_watermark: int, after_us: int) -> None:
        self.leases = {lease: until for lease, until in self.leases.items() if until + after_us >= build_watermark}

    def _is_mine(self, signal: Signal) -> bool:
        return (
            home(signal.hash, self.nodes) == self.number
            and 0 <= signal.node < self.nodes
            and signal.node != self.number
        )

    def _hashes(self, node: int, fragment: bool) -> NDArray[np.int64]:
        return np.array(sorted(h for h, at, kind in self.leases if at == node and kind == fragment), np.int64)

    def _share(self, rows: pa.Table, node: int, whole: NDArray[np.int64], fragments: NDArray[np.int64]) -> pa.Table:
        hashes = longs(rows, "hash")
        wanted = np.isin(hashes, whole)
        if len(fragments):
            wanted |= np.isin(hashes, fragments) & in_fragment(rows, node, self.nodes)
        return rows if wanted.all() else rows.filter(pa.array(wanted)).combine_chunks()


def in_fragment(build: pa.Table, node: int, nodes: int) -> NDArray[np.bool_]:
    """Which build rows a fragment at `node` is joined with."""
    rows, columns = matrix(nodes)
    partitions = longs(build, "partition").astype(np.int32, copy=False)
    return np.asarray(fragment_of(partitions, longs(build, "offset"), rows) == node // columns)
