"""SFR: a skewed row goes to all nodes of a matrix column, columns in turn, and meets a share of the build rows on each.

See `balajoin.core.matrix`.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from balajoin.routing.policies import Assignment
from balajoin.routing.policies._detecting import DetectingPolicy
from balajoin.routing.rule import SkewRule


class Sfr(DetectingPolicy):
    name = "sfr"

    def _place(self, targets: NDArray[np.int32], entries: NDArray[np.int32], keys: NDArray[np.int64]) -> Assignment:
        return self._as_fragments(targets, entries, keys, entries >= 0)


def create(nodes: int, source: int, rule: SkewRule, saved: dict[str, Any] | None) -> Sfr:
    return Sfr(nodes, source, rule, saved)
