"""Bala-Join by work: all rows and their expected pairs count, and the skewed rows of a batch are placed at once.

A key is skewed while it has more than θ of the work, in this batch or in recent ones. All rows of a batch are counted
before the first is placed, so a key that becomes hot is spread in the batch that brings it. The sketch is the memory
between batches. `placement` bounds the work of the busiest node of each batch.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from balajoin.core.hashing import homes
from balajoin.core.matrix import replicate
from balajoin.routing.arrays import key_hashes, numbers
from balajoin.routing.expected import ExpectedMatches
from balajoin.routing.grid import Hot, place_hot, used_nodes
from balajoin.routing.half_life import HalfLife
from balajoin.routing.keytable import EMPTY
from balajoin.routing.placement import ROW, Flags, hand_out, number
from balajoin.routing.policies import Assignment, HotKey, write_state
from balajoin.routing.rule import LEAST_SKEWED_ROWS, SkewRule
from balajoin.routing.sequence import node_sequence
from balajoin.routing.sketch import Sketch

_LISTED = 32
_MOST_PAIR_WORK = 1 << 36  # of a row, so that the work of a batch fits 64 bits
_MOST_LOAD = 1 << 62
# A node has a copy of a key's build rows from the batch that sends it probe rows of the key until two half-lives, or
# one, have passed without any. Each half-life halves the mark. The home's lease ends after a similar time.
_USED = 2
# With ε = 0.2 and more slack than ε/4, four nodes of a two-sided Zipf(1.5) had up to 1.18 times their share of work,
# instead of 1.10. With less, sources disagree more about a key's nodes, and each of them has copies made.
_SLACK_OF_BALANCE = 0.25

Ints = NDArray[np.int64]


class BalaJoinByWork:
    broadcasts = False

    def __init__(self, nodes: int, rule: SkewRule, saved: dict[str, Any] | None) -> None:
        self._nodes = nodes
        self._rule = rule
        self._half_life = HalfLife(rule.half_life_ms, saved and saved["half_life"])
        self._sketch = Sketch.restore(rule.counters, saved["sketch"]) if saved else Sketch(rule.counters)
        by_work = saved and saved.get("by_work")  # the state may be of the other measure
        self._expected = ExpectedMatches(rule.counters, rule.window_us, rule.sources, by_work and by_work["expected"])
        self._loads = np.zeros(nodes, np.int64)
        if len(rule.weights) not in (0, nodes):
            raise ValueError(f"{len(rule.weights)} weights do not fit {nodes} nodes")
        weights = np.array(rule.weights or (1.0,) * nodes)
        self._weights = weights / weights.mean()
        self._copies: dict[int, Ints] = {}
        """By key and node, how recently the node got rows of the key; 0 if it has no copy of the build rows."""
        self._in_columns: set[int] = set()
        """Keys whose rows went to columns of the matrix of nodes, when they were placed last."""
        self._build_rows = np.zeros(nodes, np.int64)
        """Of this batch, by node."""
        if by_work:
            self._load_state(by_work)

    def note_build(self, hashes: Ints, times: Ints) -> None:
        self._expected.note(hashes, times)
        self._build_rows = np.bincount(homes(key_hashes(hashes), self._nodes), minlength=self._nodes)

    def assign(self, hashes: Ints) -> Assignment:
        hashes = key_hashes(hashes)
        before = self._sketch.copy()
        self._sketch.count_frequent(hashes)
        keys, pairs = self._skewed_keys(before, len(hashes))
        batch = number(hashes, keys, self._nodes)
        given = (batch.others + self._build_rows) * ROW + pairs
        hot = self._described(batch.keys, batch.rows) if len(batch.keys) else None
        self._build_rows = np.zeros(self._nodes, np.int64)
        self._expected.end_batch()
        if hot is None:
            self._add_loads(given)
            return Assignment(batch.targets, batch.entries, batch.keys)
        slack = self._rule.balance * _SLACK_OF_BALANCE
        skewed, placement = place_hot(given, hot, self._weights, slack, self._rule.may_fragment)
        self._add_loads(placement.loads)
        hand_out(batch, skewed, placement.quotas)
        columns = skewed.steps < self._nodes
        in_columns: Flags = np.any(columns, axis=1)
        self._note_copies(hot, in_columns, used_nodes(skewed, placement.quotas))
        if not in_columns.any():
            return Assignment(batch.targets, batch.entries, batch.keys)
        fragmented = (batch.entries != EMPTY) & columns[batch.entries, batch.targets]
        rows, targets = replicate(batch.targets, fragmented, self._nodes)
        return Assignment(targets, batch.entries[rows], batch.keys, rows, fragmented[rows])

    def _add_loads(self, loads: Ints) -> None:
        self._loads = np.minimum(self._loads + loads, _MOST_LOAD)

    def _skewed_keys(self, before: Sketch, rows: int) -> tuple[Ints, Ints]:
        """Keys with more than θ of the work of this batch, or of all recent rows; and the pairs of others, by node.

        `before` is the sketch before the batch.
        """
        hashes, counts, errors = self._sketch.held
        surely = counts - errors
        # A key that the batch has pushed out of the sketch and brought back begins anew.
        gained = np.maximum(surely - before.surely_each(hashes), 0)
        work = self._row_work(hashes)
        skewed = self._is_skewed(surely, work, self._sketch.total) | self._is_skewed(gained, work, rows)
        pairs = np.zeros(self._nodes, np.int64)
        np.add.at(pairs, homes(hashes[~skewed], self._nodes), (gained * (work - ROW))[~skewed])
        return hashes[skewed], pairs

    def _is_skewed(self, counts: Ints, row_work: Ints, rows: int) -> NDArray[np.bool_]:
        work = counts * row_work
        total = rows * ROW + int((work - counts * ROW).sum())
        skewed: NDArray[np.bool_] = (counts >= LEAST_SKEWED_ROWS) & (work > self._rule.threshold * total)
        return skewed

    def _row_work(self, hashes: Ints) -> Ints:
        pairs = self._expected.matches(hashes) * (self._rule.pair_cost * ROW)
        work: Ints = ROW + np.minimum(pairs, _MOST_PAIR_WORK).astype(np.int64)
        return work

    def _described(self, keys: Ints, rows: Ints) -> Hot:
        none = np.zeros(self._nodes, np.int64)
        copied = np.stack([self._copies.get(key, none) > 0 for key in keys.tolist()])
        copied[np.arange(len(keys)), homes(keys, self._nodes)] = False
        copy_work = np.maximum(self._expected.batch_rows(keys) * ROW, 1).astype(np.int64)
        in_columns = np.array([key in self._in_columns for key in keys.tolist()])
        return Hot(keys, rows, self._row_work(keys), copy_work, copied, in_columns)

    def _note_copies(self, hot: Hot, in_columns: Flags, used: Flags) -> None:
        """Keys that the sketch no longer holds are forgotten, so that the memory is bounded.

        A key that changes its kind of places loses the copies of the old kind when their leases end.
        """
        kept = hot.beside_home | (in_columns == hot.in_columns)[:, None]
        at_home = homes(hot.hashes, self._nodes)
        for entry, key in enumerate(hot.hashes.tolist()):
            used[entry, at_home[entry]] = False
            if used[entry].any() or key in self._copies:
                marks = np.where(kept[entry], self._copies.get(key, 0), 0)
                self._copies[key] = np.where(used[entry], _USED, marks)
        held = set(self._sketch.held[0].tolist())
        self._copies = {key: nodes for key, nodes in self._copies.items() if key in held and nodes.any()}
        self._in_columns -= set(hot.hashes[~in_columns].tolist())
        self._in_columns |= set(hot.hashes[in_columns].tolist())
        self._in_columns &= self._copies.keys()

    def age(self, now_ms: int) -> None:
        if times := min(self._half_life.halvings(now_ms), 63):
            self._sketch.halve(times)
            self._loads >>= times
            aged = {key: nodes >> times for key, nodes in self._copies.items()}
            self._copies = {key: nodes for key, nodes in aged.items() if nodes.any()}
            self._in_columns &= self._copies.keys()

    def state(self) -> bytes:
        marks = [
            (key, node, mark) for key in sorted(self._copies) for node, mark in enumerate(self._copies[key]) if mark
        ]
        content = {
            "half_life": self._half_life.state(),
            "sketch": self._sketch.state(),
            "by_work": {
                "expected": self._expected.state(),
                "loads": self._loads,
                "copies": np.array(marks, np.int64).reshape(-1, 3).T.copy(),
                "in_columns": np.array(sorted(self._in_columns), np.int64),
            },
        }
        return write_state("bala-join", self._nodes, content)

    def _load_state(self, state: dict[str, Any]) -> None:
        """A state for another number of nodes is ignored: loads begin at zero, and every key at its home."""
        loads, copies = numbers(state["loads"], None), numbers(state["copies"], 3, None)
        if len(loads) != self._nodes:
            return
        _, nodes, marks = copies
        if (loads < 0).any() or ((nodes < 0) | (nodes >= self._nodes) | (marks < 1) | (marks > _USED)).any():
            raise ValueError("a load or a copy that cannot be")
        self._loads[:] = loads
        for key, node, mark in copies.T.tolist():
            self._copies.setdefault(key, np.zeros(self._nodes, np.int64))[node] = mark
        if "in_columns" in state:  # an older balajoin used no columns
            self._in_columns = set(numbers(state["in_columns"], None).tolist()) & self._copies.keys()

    def hot_keys(self) -> list[HotKey]:
        hashes, counts, errors = self._sketch.held
        skewed = self._is_skewed(counts - errors, self._row_work(hashes), self._sketch.total)
        listed = np.stack([hashes, counts])[:, skewed][:, :_LISTED]
        total = self._sketch.total
        return [HotKey(hash_, rows, rows / total, self._nodes_of(hash_)) for hash_, rows in listed.T.tolist()]

    def _nodes_of(self, hash_: int) -> tuple[int, ...]:
        home, *others = node_sequence(hash_, self._nodes)
        copies = self._copies.get(hash_)
        return (home, *(node for node in others if copies is not None and copies[node]))

    def loads(self) -> list[int]:
        """Of each node, as much as a node of average weight would have to be as loaded."""
        return [int(load) for load in self._loads / (self._weights * ROW)]
