"""PnR: skewed rows go to all nodes in turn; matching build rows go to every node. Most even, with most traffic."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from balajoin.routing.policies import Assignment
from balajoin.routing.policies._detecting import DetectingPolicy
from balajoin.routing.rule import SkewRule


class Pnr(DetectingPolicy):
    name = "pnr"

    def _place(self, targets: NDArray[np.int32], entries: NDArray[np.int32], keys: NDArray[np.int64]) -> Assignment:
        skewed = entries >= 0
        rows = int(skewed.sum())
        targets[skewed] = (self._turn + np.arange(rows)) % self._nodes
        self._turn = (self._turn + rows) % self._nodes
        return Assignment(targets, entries, keys)


def create(nodes: int, source: int, rule: SkewRule, saved: dict[str, Any] | None) -> Pnr:
    return Pnr(nodes, source, rule, saved)
