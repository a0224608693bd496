"""The head of a node's state: all that is not rows. Older layouts are read and become today's."""

from collections.abc import Mapping
from typing import Any

from balajoin.core import codec
from balajoin.core.event_time import BEGINNING, Past

HEAD = -1
"""Under this number a node's state holds the head; blocks have others."""

_VERSION = 4


def read(state: bytes) -> dict[str, Any]:
    return codec.decode("node", _VERSION, state, _UPGRADES)


def write(content: dict[str, Any]) -> bytes:
    return codec.encode("node", _VERSION, content)


def _from_2(content: dict[str, Any]) -> dict[str, Any]:
    """All joins were inner joins, and nothing was known of the last batch."""
    pins = {"join.type": "inner", **content["pins"]}
    return {**content, "pins": pins, "decided": {}, "overdue": [], "last": None, "owed": 0}


def _from_3(content: dict[str, Any]) -> dict[str, Any]:
    """Records did not name the plan that wrote them. Build rows were dropped as of two batches before the last."""
    settled = Past(BEGINNING, content["past"]).as_of((content["last"] or (-1, 0))[0] - 2)
    pinned = [earliest for _, _, earliest, *_ in content["guest"]["pins"]]
    return {**content, "plans": [], "build_kept_from": min([settled, *pinned])}


_UPGRADES: Mapping[int, codec.Upgrade] = {2: _from_2, 3: _from_3}
