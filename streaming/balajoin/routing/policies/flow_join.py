"""Flow-Join: treats keys that are skewed on both sides as SFR does, and on the probe side only as PRPD does.

One sketch for each side decides. Only build rows that the source passed before this call count.

Keys that are skewed on the build side only are hashed here like all others. The paper would treat them by PRPD with the
sides exchanged: build rows stay where they are, probe rows go to all nodes. Here build rows always go to their home.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balajoin.routing.detection import Online
from balajoin.routing.policies import Assignment
from balajoin.routing.policies._detecting import DetectingPolicy
from balajoin.routing.rule import SkewRule


class FlowJoin(DetectingPolicy):
    name = "flow-join"

    def __init__(self, nodes: int, source: int, rule: SkewRule, saved: dict[str, Any] | None) -> None:
        super().__init__(nodes, source, replace(rule, keys=()), saved)
        self._build = Online(rule, saved and saved["build"])

    def note_build(self, hashes: NDArray[np.int64], times: NDArray[np.int64]) -> None:
        self._build.sketch.count(hashes)

    def _place(self, targets: NDArray[np.int32], entries: NDArray[np.int32], keys: NDArray[np.int64]) -> Assignment:
        targets[entries >= 0] = self._own_node
        on_both_sides = np.array([*map(self._build.is_skewed, keys.tolist()), False], np.bool_)
        return self._as_fragments(targets, entries, keys, on_both_sides[entries])  # entry -1 takes the False at the end

    def _halve(self, times: int) -> None:
        super()._halve(times)
        self._build.halve(times)

    def _content(self) -> dict[str, Any]:
        return {**super()._content(), "build": self._build.state()}


def create(nodes: int, source: int, rule: SkewRule, saved: dict[str, Any] | None) -> FlowJoin:
    return FlowJoin(nodes, source, rule, saved)
