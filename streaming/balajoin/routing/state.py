"""What a source remembers from batch to batch, and how checkpoints hold it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from balajoin.core import codec
from balajoin.core.messages import Lease
from balajoin.core.sides import SIDES, Side
from balajoin.routing import policies

_VERSION = 2
_UPGRADES: Mapping[int, codec.Upgrade] = {}


@dataclass(frozen=True)
class SourceState:
    latest: Mapping[Side, int]
    """The newest time of each side."""
    leases: Mapping[Lease, int]
    """For each lease, the time up to which the home knows that the node gets probe rows of the hash."""
    policy: bytes
    """The policy's state, as `policies.make` takes it."""

    @classmethod
    def read(cls, written: bytes) -> "SourceState":
        content = codec.decode("source", _VERSION, written, _UPGRADES)
        with codec.refusing_damage("source"):
            return cls(
                latest={side: codec.integer(content["latest"][side]) for side in SIDES},
                leases={
                    (codec.integer(hash_), codec.integer(node), bool(fragment)): codec.integer(until)
                    for hash_, node, fragment, until in content["leases"]
                },
                policy=_bytes(content["policy"]),
            )

    def write(self) -> bytes:
        content = {
            "latest": dict(self.latest),
            "leases": [[*lease, until] for lease, until in sorted(self.leases.items())],
            "policy": self.policy,
        }
        return codec.encode("source", _VERSION, content)

    def rescaled(self, nodes: int) -> "SourceState":
        """The state for another number of nodes, where keys have other homes, which have granted no lease yet."""
        return replace(self, leases={}, policy=policies.rescaled(self.policy, nodes))


def _bytes(value: Any) -> bytes:
    if type(value) is not bytes:
        raise TypeError("not bytes")
    return value
