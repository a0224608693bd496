"""The router of one source, without Spark: (state, the source's new blocks) → (a parcel for every node, state)."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from balajoin import codec
from balajoin.blocks import longs, partition_by
from balajoin.compute.watermarks import BEGINNING
from balajoin.routing.policies import Policy
from balajoin.sides import Side

_STATE_VERSION = 1


@dataclass
class Source:
    side: Side
    policy: Policy
    nodes: int
    lateness_us: int
    latest: int = BEGINNING

    @classmethod
    def restore(cls, side: Side, policy: Policy, nodes: int, lateness_us: int, state: bytes | None) -> "Source":
        source = cls(side, policy, nodes, lateness_us)
        if state is not None:
            source.latest = codec.decode("source", _STATE_VERSION, state)["latest"]
        return source

    def state(self) -> bytes:
        return codec.encode("source", _STATE_VERSION, {"latest": self.latest})

    @property
    def watermark(self) -> int:
        """No row of this source is expected below. Every node hears of it in every batch."""
        return self.latest - self.lateness_us if self.latest > BEGINNING else BEGINNING

    def route(self, blocks: Sequence[pa.Table], latest: int) -> list[list[pa.Table]]:
        """The rows for each node, in their order. `latest` is the newest time among them."""
        self.latest = max(self.latest, latest)
        parcels: list[list[pa.Table]] = [[] for _ in range(self.nodes)]
        for block in blocks:
            targets = self.policy.assign(self.side, longs(block, "hash"))
            for parcel, rows in zip(parcels, partition_by(block, targets, self.nodes), strict=True):
                if rows.num_rows:
                    parcel.append(rows)
        return parcels
