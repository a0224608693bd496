"""Bala-Join: a sketch of the rows so far decides row by row which are skewed; BalancedPartition places these."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from balajoin.core.hashing import mix
from balajoin.core.kernels import kernel
from balajoin.routing.arrays import key_hashes
from balajoin.routing.balance import BalancedPartition, entry_of, place
from balajoin.routing.detection import Online, number_keys
from balajoin.routing.half_life import HalfLife
from balajoin.routing.keytable import EMPTY, Ints, Slots
from balajoin.routing.policies import Assignment, HotKey, write_state
from balajoin.routing.policies._by_work import BalaJoinByWork
from balajoin.routing.rule import SkewRule
from balajoin.routing.sequence import Sequences, node_sequence
from balajoin.routing.sketch import count, is_skewed


@kernel
def _route_kernel(
    sketch_slots: Slots,
    sketch: Ints,
    threshold: float,
    slots: Slots,
    cells: Ints,
    sequences: Sequences,
    loads: Ints,
    extremes: Ints,
    balance: float,
    hashes: Ints,
    begin: int,
    targets: NDArray[np.int32],
    entries: NDArray[np.int32],
) -> int:
    """Routes rows from `begin` on, up to the one that takes the last room for a U(x). Returns the number of rows."""
    nodes = np.uint64(len(loads))
    last_entry = cells.shape[1] - 1
    for i in range(begin, len(hashes)):
        mixed = mix(np.uint64(hashes[i]), 0)
        position = count(sketch_slots, sketch, hashes[i], mixed)
        if is_skewed(sketch, position, threshold):
            entry = entry_of(slots, cells, extremes, hashes[i], mixed)
            entries[i] = entry
            targets[i] = place(cells, sequences, loads, extremes, entry, balance)
            if entry == last_entry:
                return i + 1
        else:
            entries[i] = EMPTY
            targets[i] = np.int32(mixed % nodes)
    return len(hashes)


class BalaJoin:
    broadcasts = False

    def __init__(self, nodes: int, rule: SkewRule, saved: dict[str, Any] | None) -> None:
        self._nodes = nodes
        self._rule = rule
        self._half_life = HalfLife(rule.half_life_ms, saved and saved["half_life"])
        self._online = Online(rule, saved and saved["sketch"])
        # Forgetting keeps only keys that the sketch holds, so at least half of this capacity becomes free.
        self._partition = BalancedPartition(nodes, rule.balance, 2 * rule.counters)
        if saved is not None and "partition" in saved:
            self._partition.load_state(saved["partition"])
        if self._partition.is_full:
            self._forget()

    def assign(self, hashes: NDArray[np.int64]) -> Assignment:
        hashes = key_hashes(hashes)
        targets, entries = np.empty(len(hashes), np.int32), np.empty(len(hashes), np.int32)
        routed = self._route(hashes, 0, targets, entries)
        if not self._partition.is_full:
            return Assignment(targets, *self._partition.used_keys(entries))
        self._forget()
        while routed < len(hashes):
            routed = self._route(hashes, routed, targets, entries)
            if self._partition.is_full:
                self._forget()
        self._partition.used_keys(entries[:0])
        return Assignment(targets, *number_keys(hashes, entries != EMPTY))

    def _route(
        self, hashes: NDArray[np.int64], begin: int, targets: NDArray[np.int32], entries: NDArray[np.int32]
    ) -> int:
        sketch, rule = self._online.sketch, self._rule
        return _route_kernel(
            sketch.slots,
            sketch.cells,
            rule.threshold,
            *self._partition.arrays,
            rule.balance,
            hashes,
            begin,
            targets,
            entries,
        )

    def _forget(self) -> None:
        """Keys far below θ lose their U(x). The limit is not θ itself: a share close to θ crosses it all the time."""
        least = self._rule.threshold / 2 * self._online.sketch.total
        self._partition.keep(self._online.sketch.surely_each(self._partition.keys) > least)

    def note_build(self, hashes: NDArray[np.int64], times: NDArray[np.int64]) -> None:
        """Only the probe side decides."""

    def age(self, now_ms: int) -> None:
        if times := self._half_life.halvings(now_ms):
            self._online.halve(times)
            self._partition.halve(times)
            self._forget()

    def state(self) -> bytes:
        content = {
            "half_life": self._half_life.state(),
            "sketch": self._online.state(),
            "partition": self._partition.state(),
        }
        return write_state("bala-join", self._nodes, content)

    def hot_keys(self) -> list[HotKey]:
        return [HotKey(hash_, rows, share, self._nodes_of(hash_)) for hash_, rows, share in self._online.frequent()]

    def loads(self) -> list[int]:
        return [int(load) for load in self._partition.loads]

    def _nodes_of(self, hash_: int) -> tuple[int, ...]:
        return self._partition.nodes_of(hash_) or node_sequence(hash_, self._nodes)[:1]


def create(nodes: int, source: int, rule: SkewRule, saved: dict[str, Any] | None) -> BalaJoin | BalaJoinByWork:
    return BalaJoinByWork(nodes, rule, saved) if rule.measure == "work" else BalaJoin(nodes, rule, saved)
