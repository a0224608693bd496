"""The base of policies that detect skewed keys and place their rows by a fixed rule."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balajoin.core.codec import integer
from balajoin.core.hashing import homes
from balajoin.core.matrix import matrix, replicate
from balajoin.routing.arrays import key_hashes
from balajoin.routing.detection import Detector, detector, number_keys
from balajoin.routing.half_life import HalfLife
from balajoin.routing.policies import Assignment, HotKey, write_state
from balajoin.routing.rule import PolicyName, SkewRule
from balajoin.routing.sequence import node_sequence


class DetectingPolicy(ABC):
    name: PolicyName
    broadcasts = True

    def __init__(self, nodes: int, source: int, rule: SkewRule, saved: dict[str, Any] | None) -> None:
        self._nodes = nodes
        self._own_node = source % nodes
        self._may_fragment = rule.may_fragment
        self._turn = 0 if saved is None else integer(saved["turn"])
        self._half_life = HalfLife(rule.half_life_ms, saved and saved["half_life"])
        self._detector: Detector = detector(rule, saved and saved["detector"])

    def assign(self, hashes: NDArray[np.int64]) -> Assignment:
        hashes = key_hashes(hashes)
        entries, keys = number_keys(hashes, self._detector.detect(hashes))
        return self._place(homes(hashes, self._nodes), entries, keys)

    @abstractmethod
    def _place(self, targets: NDArray[np.int32], entries: NDArray[np.int32], keys: NDArray[np.int64]) -> Assignment:
        """Makes the assignment. `targets` are the homes of all rows; rows with an entry are skewed."""

    def _as_fragments(
        self,
        targets: NDArray[np.int32],
        entries: NDArray[np.int32],
        keys: NDArray[np.int64],
        fragmented: NDArray[np.bool_],
    ) -> Assignment:
        if not fragmented.any():
            return Assignment(targets, entries, keys)
        count = int(fragmented.sum())
        if not self._may_fragment:  # a matrix of one row: its columns have one node, where the row meets all build rows
            targets[fragmented] = (self._turn + np.arange(count)) % self._nodes
            self._turn = (self._turn + count) % self._nodes
            return Assignment(targets, entries, keys)
        _, columns = matrix(self._nodes)
        targets[fragmented] = (self._turn + np.arange(count)) % columns
        rows, sent = replicate(targets, fragmented, self._nodes)
        self._turn = (self._turn + count) % columns
        return Assignment(sent, entries[rows], keys, rows, fragmented[rows])

    def note_build(self, hashes: NDArray[np.int64], times: NDArray[np.int64]) -> None:  # noqa: B027  most look at the probe side only
        pass

    def age(self, now_ms: int) -> None:
        if times := self._half_life.halvings(now_ms):
            self._halve(times)

    def _halve(self, times: int) -> None:
        self._detector.halve(times)

    def state(self) -> bytes:
        return write_state(self.name, self._nodes, self._content())

    def _content(self) -> dict[str, Any]:
        return {"turn": self._turn, "half_life": self._half_life.state(), "detector": self._detector.state()}

    def hot_keys(self) -> list[HotKey]:
        return [HotKey(hash_, rows, share, self._nodes_of(hash_)) for hash_, rows, share in self._detector.frequent()]

    def loads(self) -> list[int]:
        return []

    def _nodes_of(self, hash_: int) -> tuple[int, ...]:
        return node_sequence(hash_, self._nodes)
