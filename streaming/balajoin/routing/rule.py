from dataclasses import dataclass
from typing import Literal

PolicyName = Literal["hash", "prpd", "pnr", "sfr", "flow-join", "bppr", "bppr-det", "bala-join"]


@dataclass(frozen=True)
class SkewRule:
    threshold: float = 0.01
    balance: float = 0.2
    counters: int = 1024
    half_life_ms: int = 60_000
    keys: tuple[int, ...] = ()
    first_pass_rows: int = 100_000
