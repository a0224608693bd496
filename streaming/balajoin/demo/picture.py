"""The demo at one moment: all that is shown of it."""

from dataclasses import dataclass
from typing import Literal

from balajoin.demo.figures import Figures
from balajoin.observe.hot_keys import HotKey

Phase = Literal["joining", "draining", "done"]


@dataclass(frozen=True)
class JoinPicture:
    policy: str
    drained: bool
    rows_in: int
    rows_in_per_s: float
    pairs_out: int
    pairs_out_per_s: float
    batches: int
    batch_ms: int
    """Of the last one."""

    figures: Figures
    hot_keys: tuple[HotKey, ...] = ()
    """Most frequent first."""


@dataclass(frozen=True)
class Picture:
    ended: bool
    """Whether all is sent."""

    elapsed_s: float
    seconds: int
    sent: int
    joins: tuple[JoinPicture, ...]

    @property
    def phase(self) -> Phase:
        if not self.ended:
            return "joining"
        return "done" if all(join.drained for join in self.joins) else "draining"
