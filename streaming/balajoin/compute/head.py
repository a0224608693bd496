"""The head of a node's state: all that is not rows. Older layouts are read and become today's."""

from collections.abc import Mapping
from typing import Any

from balajoin import codec

HEAD = -1
"""Under this number a node's state holds the head; blocks have others."""

_VERSION = 2
_UPGRADES: Mapping[int, codec.Upgrade] = {}


def read(state: bytes) -> dict[str, Any]:
    return codec.decode("node", _VERSION, state, _UPGRADES)


def write(content: dict[str, Any]) -> bytes:
    return codec.encode("node", _VERSION, content)
