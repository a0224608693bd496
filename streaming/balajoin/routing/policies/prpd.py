"""PRPD: skewed rows stay where they are, at the source's own node; matching build rows go to every node.

Even only where sources have equally many skewed rows.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from balajoin.routing.policies import Assignment
from balajoin.routing.policies._detecting import DetectingPolicy
from balajoin.routing.rule import SkewRule
from balajoin.routing.sequence import node_sequence


class Prpd(DetectingPolicy):
    name = "prpd"

    def _place(self, targets: NDArray[np.int32], entries: NDArray[np.int32], keys: NDArray[np.int64]) -> Assignment:
        targets[entries >= 0] = self._own_node
        return Assignment(targets, entries, keys)

    def _nodes_of(self, hash_: int) -> tuple[int, ...]:
        home = node_sequence(hash_, self._nodes)[0]
        return (home,) if home == self._own_node else (home, self._own_node)


def create(nodes: int, source: int, rule: SkewRule, saved: dict[str, Any] | None) -> Prpd:
    return Prpd(nodes, source, rule, saved)
