"""Decides which rows are skewed: those of given keys, or those that a sketch of the rows so far finds."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from balajoin.core.codec import integer
from balajoin.core.hashing import mix
from balajoin.core.kernels import kernel
from balajoin.routing.arrays import key_hashes, numbers
from balajoin.routing.keytable import EMPTY, HASH, Ints, Slots, empty_slots, enter, find, refill, slot_of
from balajoin.routing.rule import SkewRule
from balajoin.routing.sketch import Sketch

_FIRST_CAPACITY = 256
_LISTED = 32


class Detector(Protocol):
    def detect(self, hashes: Ints) -> NDArray[np.bool_]:
        """Counts rows, and says of each whether its key is skewed."""
        ...

    def halve(self, times: int) -> None: ...

    def frequent(self) -> list[tuple[int, int, float]]:
        """Hash, recent rows and share of the skewed keys, most frequent first, at most 32."""
        ...

    def state(self) -> dict[str, Any]: ...


def detector(rule: SkewRule, state: dict[str, Any] | None) -> Detector:
    return GivenKeys(rule.keys, state) if rule.keys else Online(rule, state)


class Online:
    """A key is skewed while the sketch is sure that its share of the recent rows exceeds the threshold."""

    def __init__(self, rule: SkewRule, state: dict[str, Any] | None = None) -> None:
        self._threshold = rule.threshold
        self.sketch = Sketch.restore(rule.counters, state) if state and "held" in state else Sketch(rule.counters)

    def detect(self, hashes: Ints) -> NDArray[np.bool_]:
        return self.sketch.judge(hashes, self._threshold)

    def halve(self, times: int) -> None:
        self.sketch.halve(times)

    def frequent(self) -> list[tuple[int, int, float]]:
        total = self.sketch.total
        listed = self.sketch.all_skewed(self._threshold)[:, :_LISTED]
        return [(hash_, rows, rows / total) for hash_, rows in listed.T.tolist()]

    def skewed_keys(self) -> Ints:
        """Hashes of all keys that are skewed now."""
        hashes: Ints = self.sketch.all_skewed(self._threshold)[0]
        return hashes

    def is_skewed(self, hash_: int) -> bool:
        return self.sketch.skewed(hash_, self._threshold)

    def state(self) -> dict[str, Any]:
        return self.sketch.state()


@kernel
def _given_kernel(slots: Slots, cells: Ints, hashes: Ints, rows: Ints, skewed: NDArray[np.bool_]) -> None:
    for i in range(len(hashes)):
        position = find(slots, cells, hashes[i])
        skewed[i] = position != EMPTY
        if position != EMPTY:
            rows[position] += 1


class GivenKeys:
    """Exactly the given keys are skewed. Rows are counted for the statistics."""

    def __init__(self, keys: tuple[int, ...], state: dict[str, Any] | None = None) -> None:
        self.keys = np.unique(np.array(keys, np.int64))
        self._slots = empty_slots(len(self.keys))
        self._cells = np.zeros((2, len(self.keys)), np.int64)
        self._cells[HASH] = self.keys
        refill(self._slots, self._cells, len(self.keys))
        self._rows = np.zeros(len(self.keys), np.int64)
        self._total = 0
        if state and "rows" in state:
            self._total = integer(state["total"])
            keys, rows = (numbers(state[name], None).tolist() for name in ("keys", "rows"))
            before = dict(zip(keys, rows, strict=True))
            self._rows[:] = [before.get(key, 0) for key in self.keys.tolist()]

    def detect(self, hashes: Ints) -> NDArray[np.bool_]:
        skewed = np.empty(len(hashes), np.bool_)
        _given_kernel(self._slots, self._cells, key_hashes(hashes), self._rows, skewed)
        self._total += len(hashes)
        return skewed

    def halve(self, times: int) -> None:
        self._rows >>= min(times, 63)
        self._total >>= times

    def frequent(self) -> list[tuple[int, int, float]]:
        order = np.argsort(-self._rows, kind="stable")[:_LISTED]
        return [
            (int(self.keys[at]), int(self._rows[at]), int(self._rows[at]) / self._total)
            for at in order
            if self._rows[at] > 0
        ]

    def state(self) -> dict[str, Any]:
        return {"keys": self.keys, "rows": self._rows, "total": self._total}


@kernel
def _number_kernel(
    slots: Slots, cells: Ints, hashes: Ints, skewed: NDArray[np.bool_], entries: NDArray[np.int32]
) -> int:
    """The number of keys, or -1 if there is no room for all."""
    numbered = 0
    for i in range(len(hashes)):
        entries[i] = EMPTY
        if skewed[i]:
            slot = slot_of(slots, cells, hashes[i], mix(np.uint64(hashes[i]), 0))
            if slots[slot] == EMPTY:
                if numbered == cells.shape[1]:
                    return -1
                enter(slots, cells, numbered, hashes[i], slot)
                numbered += 1
            entries[i] = slots[slot]
    return numbered


def number_keys(hashes: Ints, skewed: NDArray[np.bool_]) -> tuple[NDArray[np.int32], Ints]:
    """Entries and keys of an assignment: the keys of the skewed rows in order of appearance."""
    entries = np.empty(len(hashes), np.int32)
    capacity = _FIRST_CAPACITY
    while True:
        cells = np.empty((2, capacity), np.int64)
        numbered = _number_kernel(empty_slots(capacity), cells, key_hashes(hashes), skewed, entries)
        if numbered >= 0:
            return entries, cells[HASH, :numbered].copy()
        capacity *= 4
