"""What counts as skewed, and how evenly skewed rows are spread: the numbers that every policy gets."""

from dataclasses import dataclass
from typing import Literal

PolicyName = Literal["hash", "prpd", "pnr", "sfr", "flow-join", "bppr", "bppr-det", "bala-join"]

# Until a key has this many rows, its share proves nothing: without a minimum the first row of every stream is skewed.
# Where θ expects 32 rows, a key of half that share has 32 with a probability of 0.0003 (Poisson with mean 16).
LEAST_SKEWED_ROWS = 32


@dataclass(frozen=True)
class SkewRule:
    threshold: float = 0.01  # θ: a key is skewed while its share of the source's recent rows exceeds it
    balance: float = 0.2  # ε: how far below the fullest node, as a share of it, the emptiest may be
    counters: int = 1024  # of the sketch; keys with a share above 1/counters are surely found
    half_life_ms: int = 60_000  # the time after which counts and loads halve
    keys: tuple[int, ...] = ()  # hashes of skewed keys, if they are given
    first_pass_rows: int = 100_000  # bppr-det detects over this many first rows of a source
    may_fragment: bool = True  # whether a probe row may go to several nodes; not if one must know all its matches

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise ValueError(f"threshold must be above 0 and at most 1, not {self.threshold}")
        if not 0 <= self.balance <= 1:
            raise ValueError(f"balance must be between 0 and 1, not {self.balance}")
        for name in ("counters", "half_life_ms", "first_pass_rows"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
