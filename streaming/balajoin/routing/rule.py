"""What counts as skewed, and how evenly skewed rows are spread: the numbers that every policy gets."""

from dataclasses import dataclass
from math import inf
from typing import Literal

ROUTING_VERSION = 2
"""To be raised when equal rows and an equal state may go to other nodes than before: see `sinks.marker`."""

PolicyName = Literal["hash", "prpd", "pnr", "sfr", "flow-join", "bppr", "bppr-det", "bala-join"]

Measure = Literal["work", "rows"]

# Until a key has this many rows, its share proves nothing: without a minimum the first row of every stream is skewed.
# Where θ expects 32 rows, a key of half that share has 32 with a probability of 0.0003 (Poisson with mean 16).
LEAST_SKEWED_ROWS = 32


@dataclass(frozen=True)
class SkewRule:
    threshold: float = 0.01  # θ: a key is skewed while its share of the source's recent rows exceeds it
    balance: float = 0.2  # ε: how far below the fullest node, as a share of it, the emptiest may be
    counters: int = 1024  # of the sketch; keys with a share above 1.5/counters are surely found
    half_life_ms: int = 60_000  # the time after which counts and loads halve
    keys: tuple[int, ...] = ()  # hashes of skewed keys, if they are given
    first_pass_rows: int = 100_000  # bppr-det detects over this many first rows of a source
    measure: Measure = "rows"  # what a node's load counts: skewed rows, as the paper does, or all rows and pairs
    pair_cost: float = 1.0  # the work of a pair, in rows
    window_us: int = 0  # how far apart in time the rows of a pair may be: before + after
    sources: int = 1  # with build rows
    weights: tuple[float, ...] = ()  # of each node, what work it can do compared with others; none: all alike
    may_fragment: bool = True  # whether a probe row may go to several nodes; not if one must know all its matches

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise ValueError(f"threshold must be above 0 and at most 1, not {self.threshold}")
        if not 0 <= self.balance <= 1:
            raise ValueError(f"balance must be between 0 and 1, not {self.balance}")
        if self.pair_cost < 0:
            raise ValueError(f"pair_cost must not be negative, but is {self.pair_cost}")
        if any(not 0 < weight < inf for weight in self.weights):
            raise ValueError("weights must be above 0")
        for name in ("counters", "half_life_ms", "first_pass_rows", "sources"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
