"""BPPR with an independent detector: a first pass over the beginning of the source finds the skewed keys, for ever.

Rows of a call are counted before they are routed. So the call that completes the first pass routes all its rows by the
keys found; rows of earlier calls go home. Counts do not age: the first pass is the first rows, however long they take.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balajoin.routing.detection import Online
from balajoin.routing.policies import Assignment, HotKey, write_state
from balajoin.routing.policies.bppr import Bppr
from balajoin.routing.policies.hash import HashPolicy
from balajoin.routing.rule import SkewRule


class BpprDet:
    broadcasts = False

    def __init__(self, nodes: int, rule: SkewRule, saved: dict[str, Any] | None) -> None:
        self._nodes = nodes
        self._rule = rule
        self._home = HashPolicy(nodes)
        self._first_pass = Online(rule, saved and saved["first_pass"])
        self._bppr = Bppr(nodes, rule, None)
        self._frozen = False
        if saved is not None and saved["keys"] is not None:
            self._freeze(saved["keys"], saved["bppr"])
        elif saved is not None:
            self._bppr = Bppr(nodes, rule, saved["bppr"])

    def assign(self, hashes: NDArray[np.int64]) -> Assignment:
        if not self._frozen:
            self._count(hashes)
        return self._bppr.assign(hashes) if self._frozen else self._home.assign(hashes)

    def _count(self, hashes: NDArray[np.int64]) -> None:
        wanted = max(self._rule.first_pass_rows - self._first_pass.sketch.total, 0)
        self._first_pass.sketch.count(hashes[:wanted])
        if len(hashes) >= wanted:
            self._freeze(self._first_pass.skewed_keys(), self._bppr.content())

    def _freeze(self, keys: NDArray[np.int64], content: dict[str, Any]) -> None:
        self._frozen = True
        self._bppr = Bppr(self._nodes, replace(self._rule, keys=tuple(keys.tolist())), content)

    def note_build(self, hashes: NDArray[np.int64], times: NDArray[np.int64]) -> None:
        """Only the probe side decides."""

    def age(self, now_ms: int) -> None:
        self._bppr.age(now_ms)

    def state(self) -> bytes:
        keys = self._bppr.keys if self._frozen else None
        first_pass = {} if self._frozen else self._first_pass.state()
        return write_state(
            "bppr-det", self._nodes, {"keys": keys, "first_pass": first_pass, "bppr": self._bppr.content()}
        )

    def hot_keys(self) -> list[HotKey]:
        return self._bppr.hot_keys()

    def loads(self) -> list[int]:
        return self._bppr.loads()


def create(nodes: int, source: int, rule: SkewRule, saved: dict[str, Any] | None) -> BpprDet:
    return BpprDet(nodes, replace(rule, keys=()), saved)
