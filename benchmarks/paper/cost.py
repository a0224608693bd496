"""The cost model: how long a cluster of equal nodes takes for a redistribution and its join.

A node sends, receives and computes at the same time, so a node is done when the slowest of the three is. The join is
done when its last node is. A detector that must see the whole shard first adds a pass over it, before anything moves.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from paper.parameters import Parameters
from paper.redistribution import Redistribution

_BITS = 8

Detection = Literal["none", "online", "first pass"]


@dataclass(frozen=True)
class Cost:
    """Seconds by node, and results of the cluster."""

    first_pass_s: NDArray[np.float64]
    link_s: NDArray[np.float64]
    compute_s: NDArray[np.float64]
    results: float

    @property
    def seconds(self) -> float:
        return float(self.first_pass_s.max() + np.maximum(self.link_s, self.compute_s).max())

    @property
    def throughput(self) -> float:
        """Millions of results a second."""
        return self.results / self.seconds / 1e6


def cost(moved: Redistribution, mbit: float, parameters: Parameters, detection: Detection = "none") -> Cost:
    busiest_way = np.maximum(moved.sent, moved.received)  # links are full duplex
    detect_us = parameters.detect_us if detection == "online" else 0.0
    first_pass_us = parameters.first_pass_us if detection == "first pass" else 0.0
    return Cost(
        first_pass_s=moved.probe_read * first_pass_us / 1e6,
        link_s=busiest_way * parameters.row_bytes * _BITS / (mbit * 1e6),
        compute_s=(
            moved.taken * parameters.row_us + moved.results / parameters.results_per_us + moved.probe_read * detect_us
        )
        / 1e6,
        results=float(moved.results.sum()),
    )


def traffic_mb(moved: Redistribution, parameters: Parameters) -> float:
    return float(moved.sent.sum()) * parameters.row_bytes / 1e6
