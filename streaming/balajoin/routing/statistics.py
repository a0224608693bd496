"""What a source tells of one batch. It travels with the routed rows to the query's progress."""

import json
from dataclasses import asdict, dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from balajoin.routing.policies import HotKey


@dataclass
class SourceStatistics:
    source: int
    skewed_rows: list[int]
    """By node, as the balance factor counts them."""

    loads: list[int] = field(default_factory=list)
    """The same over recent batches, aged, where the policy keeps them below its balance; else empty."""

    signals: int = 0
    signal_bytes: int = 0
    hot_keys: list[HotKey] = field(default_factory=list)

    def add_skewed(self, targets: NDArray[np.int32]) -> None:
        counts = np.bincount(targets, minlength=len(self.skewed_rows))
        self.skewed_rows = [total + int(count) for total, count in zip(self.skewed_rows, counts, strict=True)]

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        content = json.loads(text)
        hot_keys = [HotKey(**{**key, "nodes": tuple(key["nodes"])}) for key in content.pop("hot_keys")]
        return cls(**content, hot_keys=hot_keys)
