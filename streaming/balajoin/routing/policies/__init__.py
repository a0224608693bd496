from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from balajoin.routing.rule import PolicyName, SkewRule


@dataclass(frozen=True)
class HotKey:
    hash: int
    rows: int
    share: float
    nodes: tuple[int, ...]


@dataclass(frozen=True)
class Assignment:
    targets: NDArray[np.int32]
    entries: NDArray[np.int32]
    keys: NDArray[np.int64]
    rows: NDArray[np.int32] | None = None
    fragments: NDArray[np.bool_] | None = None


class Policy(Protocol):
    broadcasts: bool

    def assign(self, hashes: NDArray[np.int64]) -> Assignment: ...
    def note_build(self, hashes: NDArray[np.int64]) -> None: ...
    def age(self, now_ms: int) -> None: ...
    def state(self) -> bytes: ...
    def hot_keys(self) -> list[HotKey]: ...


def make(name: PolicyName, nodes: int, source: int, rule: SkewRule, state: bytes | None = None) -> Policy: ...
