"""Notices when the machine's clock was set back: Spark then starts no batch until the clock has caught up."""

import time
from collections.abc import Callable

_WORTH_TELLING_S = 5


class ClockWatch:
    def __init__(self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._steady = steady
        self._difference = wall() - steady()

    def trouble(self) -> str | None:
        """A warning if the clock was set back since the last call, else None."""
        difference = self._wall() - self._steady()
        set_back_s = self._difference - difference
        self._difference = difference
        if set_back_s < _WORTH_TELLING_S:
            return None
        return (
            f"the clock of this machine was set back by {set_back_s:.0f} s: no batch starts for so long; restart the "
            "service to go on at once"
        )
