"""The figures of one source in one batch. They travel with the routed rows to the query's progress."""

import json
from dataclasses import asdict, dataclass, field
from typing import Self

from balajoin.routing.policies import HotKey


@dataclass(frozen=True)
class SourceStatistics:
    source: int
    skewed_rows: list[int]
    """Skewed rows by node, as the balance factor counts them."""

    loads: list[int] = field(default_factory=list)
    """The same over recent batches, aged, if the policy balances these loads; else empty."""

    signals: int = 0
    signal_bytes: int = 0
    fetched_bytes: int = 0
    """Bytes of rows that another machine than the router's had read from Kafka."""
    hot_keys: list[HotKey] = field(default_factory=list)

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        content = json.loads(text)
        hot_keys = [HotKey(**{**key, "nodes": tuple(key["nodes"])}) for key in content.pop("hot_keys")]
        return cls(**content, hot_keys=hot_keys)
