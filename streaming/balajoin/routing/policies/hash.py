"""The paper's GraHJ: every row to its key's home. The measure for all others, and what non-skewed rows always do."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from balajoin.hashing import homes
from balajoin.sides import Side


@dataclass(frozen=True)
class HashPolicy:
    nodes: int

    def assign(self, side: Side, hashes: NDArray[np.int64]) -> NDArray[np.int32]:
        return homes(hashes, self.nodes)
