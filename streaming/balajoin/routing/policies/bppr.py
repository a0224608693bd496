"""BPPR without a detector: the skewed keys are given, their rows go by the paper's BalancedPartition."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from balajoin.routing.balance import BalancedPartition
from balajoin.routing.detection import GivenKeys
from balajoin.routing.half_life import HalfLife
from balajoin.routing.policies import Assignment, HotKey, write_state
from balajoin.routing.rule import SkewRule


class Bppr:
    broadcasts = False

    def __init__(self, nodes: int, rule: SkewRule, saved: dict[str, Any] | None) -> None:
        self._nodes = nodes
        self._half_life = HalfLife(rule.half_life_ms, saved and saved["half_life"])
        self._given = GivenKeys(rule.keys, saved and saved["given"])
        self._partition = BalancedPartition(nodes, rule.balance, max(len(self._given.keys), 1))
        if saved is not None:
            self._partition.load_state(saved["partition"], only=self._given.keys)

    def assign(self, hashes: NDArray[np.int64]) -> Assignment:
        return Assignment(*self._partition.assign(hashes, self._given.detect(hashes)))

    @property
    def keys(self) -> NDArray[np.int64]:
        return self._given.keys

    def note_build(self, hashes: NDArray[np.int64], times: NDArray[np.int64]) -> None:
        """Only the probe side decides."""

    def age(self, now_ms: int) -> None:
        if times := self._half_life.halvings(now_ms):
            self._given.halve(times)
            self._partition.halve(times)

    def state(self) -> bytes:
        return write_state("bppr", self._nodes, self.content())

    def content(self) -> dict[str, Any]:
        return {
            "half_life": self._half_life.state(),
            "given": self._given.state(),
            "partition": self._partition.state(),
        }

    def hot_keys(self) -> list[HotKey]:
        return [
            HotKey(hash_, rows, share, self._partition.nodes_of(hash_)) for hash_, rows, share in self._given.frequent()
        ]

    def loads(self) -> list[int]:
        return [int(load) for load in self._partition.loads]


def create(nodes: int, source: int, rule: SkewRule, saved: dict[str, Any] | None) -> Bppr:
    return Bppr(nodes, rule, saved)
