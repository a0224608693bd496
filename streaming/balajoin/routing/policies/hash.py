"""The paper's GraHJ: every row goes to its key's home, as non-skewed rows do under all policies. It is the baseline."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from balajoin.core.hashing import homes
from balajoin.routing.arrays import key_hashes
from balajoin.routing.policies import Assignment, HotKey, write_state
from balajoin.routing.rule import SkewRule


class HashPolicy:
    broadcasts = False

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes

    def assign(self, hashes: NDArray[np.int64]) -> Assignment:
        targets = homes(key_hashes(hashes), self._nodes)
        return Assignment(targets, np.full(len(targets), -1, np.int32), np.empty(0, np.int64))

    def note_build(self, hashes: NDArray[np.int64], times: NDArray[np.int64]) -> None:
        pass

    def age(self, now_ms: int) -> None:
        pass

    def state(self) -> bytes:
        return write_state("hash", self._nodes, {})

    def hot_keys(self) -> list[HotKey]:
        return []

    def loads(self) -> list[int]:
        return []


def create(nodes: int, source: int, rule: SkewRule, saved: dict[str, Any] | None) -> HashPolicy:
    return HashPolicy(nodes)
