"""How many build rows a probe row of a key is expected to match, by the build rows that its own source passes.

A source counts its build rows in a sketch, and the event time in which they came. Counts and time halve together when
they cover two windows, so they cover the last one or two windows, or batches where these are longer. A table of build
rows that is sent once and never again is not forgotten: no event time passes.

All sources are taken to have an equal part of a key's build rows. A new number of sources counts from the second batch
on: a batch that is repeated after partitions were added must place its rows as before.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from balajoin.core.codec import integer, integer_or_none
from balajoin.routing.keytable import Ints
from balajoin.routing.sketch import Sketch


class ExpectedMatches:
    def __init__(self, counters: int, window_us: int, sources: int, state: dict[str, Any] | None = None) -> None:
        self._window_us = window_us
        self._sources = sources if state is None else integer(state.get("sources", sources))
        self._next_sources = sources
        self._sketch = Sketch(counters) if state is None else Sketch.restore(counters, state["sketch"])
        self._latest_us = None if state is None else integer_or_none(state["latest_us"])
        self._covered_us = 0 if state is None else max(integer(state["covered_us"]), 0)
        self._batch_rows = 0

    def note(self, hashes: Ints, times: Ints) -> None:
        """Counts the build rows of a batch."""
        self._batch_rows = len(hashes)
        if not len(hashes):
            return
        newest = int(times.max())
        before = int(times.min()) if self._latest_us is None else self._latest_us
        passed = max(newest - before, 0)
        self._latest_us = max(newest, before)
        if self._covered_us >= 2 * max(self._window_us, passed):
            self._sketch.halve(1)
            self._covered_us //= 2
        self._covered_us += passed
        self._sketch.count_frequent(hashes)

    def end_batch(self) -> None:
        """What follows is as after a restart from the state."""
        self._batch_rows = 0
        self._sources = self._next_sources

    def matches(self, hashes: Ints) -> NDArray[np.float64]:
        """Of a probe row of each key."""
        in_window = 1.0 if self._covered_us <= self._window_us else self._window_us / self._covered_us
        return self._surely(hashes) * (in_window * self._sources)

    def batch_rows(self, hashes: Ints) -> NDArray[np.float64]:
        """The number of build rows of each key in the batch that was noted last."""
        return np.minimum(self._surely(hashes) / max(self._sketch.total, 1), 1) * self._batch_rows

    def _surely(self, hashes: Ints) -> NDArray[np.float64]:
        return self._sketch.surely_each(hashes).astype(np.float64)

    def state(self) -> dict[str, Any]:
        return {
            "sketch": self._sketch.state(),
            "latest_us": self._latest_us,
            "covered_us": self._covered_us,
            "sources": self._next_sources,
        }
