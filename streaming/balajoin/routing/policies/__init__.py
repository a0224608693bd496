"""Routing policies, one a file: each says to which node a row goes. `make` knows them all by name."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from balajoin.routing.policies.hash import HashPolicy
from balajoin.sides import Side


class Policy(Protocol):
    def assign(self, side: Side, hashes: NDArray[np.int64]) -> NDArray[np.int32]:
        """The node of each row, given the hashes of their keys."""
        ...


def make(name: str, nodes: int) -> Policy:
    return {"hash": HashPolicy}[name](nodes)
