"""Moments and a page that shows them, for tests without a join."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from balajoin.config.address import Address
from balajoin.observe.live.hub import Hub
from balajoin.observe.live.moment import Moment, SkewedKey
from balajoin.observe.live.server import LivePage

ANYWHERE = Address("127.0.0.1", 0)
SECOND = 1_000
BEGIN_MS = 1_700_000_000_000


def moment(batch: int = 0, join: str = "clicks", **told: Any) -> Moment:
    """A moment of a join on two nodes that runs a batch every second."""
    usual: dict[str, Any] = {
        "policy": "bala-join",
        "epsilon": 0.2,
        "ended_ms": BEGIN_MS + batch * SECOND,
        "duration_ms": 400,
        "rows_in": 100,
        "rows_out": 250,
        "node_rows": (60, 40),
        "skewed_rows": (30, 28),
        "b_all": 1 / 3,
        "b_skewed": 0.07,
        "traffic": {"probe": 5_000, "build": 600, "replica": 70, "signal": 8},
        "signals": 1,
        "pulls": 1,
        "waiting_rows": 30,
        "late_rows": 0,
        "dead_letters": 0,
        "stored_rows": 1_000,
        "hot_keys": (SkewedKey(key="user-1", share=0.4, nodes=(1, 0)),),
    }
    return Moment(join=join, batch=batch, **{**usual, **told})


@contextmanager
def served(*moments: Moment) -> Iterator[tuple[Hub, str]]:
    hub = Hub()
    for each in moments:
        hub.add(each)
    with LivePage(ANYWHERE, hub) as page:
        yield hub, page.url
