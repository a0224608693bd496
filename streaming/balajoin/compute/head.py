"""The head of a node's state: all that is not rows. Older layouts are read and become today's."""

from collections.abc import Mapping
from typing import Any

from balajoin import codec

HEAD = -1
"""Under this number a node's state holds the head; blocks have others."""

_VERSION = 3


def read(state: bytes) -> dict[str, Any]:
    return codec.decode("node", _VERSION, state, _UPGRADES)


def write(content: dict[str, Any]) -> bytes:
    return codec.encode("node", _VERSION, content)


def _from_2(content: dict[str, Any]) -> dict[str, Any]:
    """All joins were inner joins, and nothing was known of the last batch."""
    pins = {"join.type": "inner", **content["pins"]}
    return {**content, "pins": pins, "decided": {}, "overdue": [], "last": None, "owed": 0}


_UPGRADES: Mapping[int, codec.Upgrade] = {2: _from_2}
