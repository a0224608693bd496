"""Space Saving (Metwally et al. 2005): finds the frequent keys of a stream with `k` counters, in constant time a row.

Counters stand in an array ordered by count. Equal counts form a *run*. A counter that grows by one changes places with
the first of its run, and then becomes the last of the run above, or a new run. A key that is not held takes the first
counter of the last run, which is the one that has had the smallest count for longest. So nothing is searched, and the
effect of a row depends only on the order of the array, which is the whole state.
"""

from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balajoin.core.codec import integer
from balajoin.core.hashing import mix
from balajoin.core.kernels import inlined, kernel
from balajoin.routing.arrays import key_hashes, numbers
from balajoin.routing.keytable import EMPTY, HASH, PLACE, Ints, Slots, empty_slots, enter, find, refill, remove, slot_of
from balajoin.routing.rule import LEAST_SKEWED_ROWS

# Rows of `cells`. By position, in order of descending count: the count, how much of it may be other keys', the run.
_COUNT, _ERROR, _RUN = 2, 3, 4
# By run: its first position. Then a stack of unused run numbers, and four sizes.
_FIRST, _UNUSED, _SIZES = 5, 6, 7
_ROWS = 8
_HELD, _UNUSED_RUNS, _TOTAL, _CAPACITY = 0, 1, 2, 3

_MOST_HALVINGS = 63  # after these a 64-bit count is 0

# To count a row of uniform keys takes 16 ns, nearly all of it for keys that the sketch soon gives up. So the rows of a
# batch are first counted by a few bits of their hash, and a key is left out if its bits have too few rows: 2 ns a row.
_LEFT_OUT = 2
"""A key is left out of a batch only if it has less than this part of 1/counters of the rows: half of it."""
_BUCKETS_PER_COUNTER = 32  # with uniform keys, the mean bucket has a sixteenth of the rows that one must have


@inlined
def count(slots: Slots, cells: Ints, hash_: int, mixed: np.uint64) -> int:
    """Counts a row and returns the position of its key. `mixed` is `mix(hash_, 0)`."""
    cells[_SIZES, _TOTAL] += 1
    slot = slot_of(slots, cells, hash_, mixed)
    position = int(slots[slot])
    if position == EMPTY:
        position = _admit(slots, cells, hash_, slot)
    return _lift(slots, cells, position)


@inlined
def _admit(slots: Slots, cells: Ints, hash_: int, slot: int) -> int:
    held = cells[_SIZES, _HELD]
    if held < cells[_SIZES, _CAPACITY]:
        cells[_SIZES, _HELD] += 1
        cells[_COUNT, held] = 0
        cells[_ERROR, held] = 0
        _start_run(cells, held)
        enter(slots, cells, held, hash_, slot)
        return int(held)
    smallest = cells[_FIRST, cells[_RUN, held - 1]]
    left = cells[PLACE, smallest]
    enter(slots, cells, smallest, hash_, slot)
    cells[_ERROR, smallest] = cells[_COUNT, smallest]
    remove(slots, cells, left)
    return int(smallest)


@inlined
def _start_run(cells: Ints, position: int) -> None:
    cells[_SIZES, _UNUSED_RUNS] -= 1
    run = cells[_UNUSED, cells[_SIZES, _UNUSED_RUNS]]
    cells[_FIRST, run] = position
    cells[_RUN, position] = run


@inlined
def _lift(slots: Slots, cells: Ints, position: int) -> int:
    """Adds one to the count."""
    run = cells[_RUN, position]
    first = cells[_FIRST, run]
    if position != first:
        _swap(slots, cells, position, first)
    cells[_COUNT, first] += 1
    below = first + 1
    alone = below == cells[_SIZES, _HELD] or cells[_RUN, below] != run
    if not alone:
        cells[_FIRST, run] = below
    if first == 0 or cells[_COUNT, first - 1] > cells[_COUNT, first]:
        if not alone:
            _start_run(cells, first)
        return int(first)
    if alone:
        cells[_UNUSED, cells[_SIZES, _UNUSED_RUNS]] = run
        cells[_SIZES, _UNUSED_RUNS] += 1
    cells[_RUN, first] = cells[_RUN, first - 1]
    return int(first)


@inlined
def _swap(slots: Slots, cells: Ints, one: int, other: int) -> None:
    """Exchanges two counters of a run."""
    for row in (HASH, PLACE, _ERROR):
        cells[row, one], cells[row, other] = cells[row, other], cells[row, one]
    slots[cells[PLACE, one]] = one
    slots[cells[PLACE, other]] = other


@inlined
def surely_at(cells: Ints, position: int) -> int:
    """The number of rows that the key at this position surely had."""
    return int(cells[_COUNT, position] - cells[_ERROR, position])


@inlined
def is_skewed(cells: Ints, position: int, threshold: float) -> bool:
    """Whether the key at this position surely has at least this share of all rows."""
    surely = cells[_COUNT, position] - cells[_ERROR, position]
    return bool(surely >= LEAST_SKEWED_ROWS and surely > threshold * cells[_SIZES, _TOTAL])


@kernel
def _count_kernel(slots: Slots, cells: Ints, hashes: Ints) -> None:
    for i in range(len(hashes)):
        count(slots, cells, hashes[i], mix(np.uint64(hashes[i]), 0))


@kernel
def _count_frequent_kernel(slots: Slots, cells: Ints, hashes: Ints, least: int, buckets: Slots) -> None:
    mask = np.uint64(len(buckets) - 1)
    if least > 1:
        for i in range(len(hashes)):
            buckets[(mix(np.uint64(hashes[i]), 0) >> np.uint64(32)) & mask] += 1
    for i in range(len(hashes)):
        mixed = mix(np.uint64(hashes[i]), 0)
        if least <= 1 or buckets[(mixed >> np.uint64(32)) & mask] >= least:
            count(slots, cells, hashes[i], mixed)
        else:
            cells[_SIZES, _TOTAL] += 1


@kernel
def _judge_kernel(slots: Slots, cells: Ints, hashes: Ints, threshold: float, skewed: NDArray[np.bool_]) -> None:
    for i in range(len(hashes)):
        position = count(slots, cells, hashes[i], mix(np.uint64(hashes[i]), 0))
        skewed[i] = is_skewed(cells, position, threshold)


@kernel
def _surely_kernel(slots: Slots, cells: Ints, hashes: Ints, surely: Ints) -> None:
    for i in range(len(hashes)):
        position = find(slots, cells, hashes[i])
        surely[i] = 0 if position == EMPTY else max(surely_at(cells, position), 0)


@kernel
def _rebuild_kernel(slots: Slots, cells: Ints, held: int) -> None:
    """Rebuilds the key table and the runs from hashes and counts."""
    refill(slots, cells, held)
    runs = 0
    for position in range(held):
        if position == 0 or cells[_COUNT, position] != cells[_COUNT, position - 1]:
            cells[_FIRST, runs] = position
            runs += 1
        cells[_RUN, position] = runs - 1
    unused = cells.shape[1] - runs
    for at in range(unused):
        cells[_UNUSED, at] = runs + at
    cells[_SIZES, _HELD] = held
    cells[_SIZES, _UNUSED_RUNS] = unused


@dataclass
class Sketch:
    """Holds at least the keys that have more than `total / counters` of the rows counted so far.

    The count of a held key is never below its true count, and `count - error` never above it; the error is at most
    `total / counters`. Halving rounds down, so after it a count may be too low, by less than one row a halving.
    """

    counters: int
    slots: Slots = field(init=False, repr=False)
    cells: Ints = field(init=False, repr=False)  # for kernels that count row by row

    def __post_init__(self) -> None:
        if self.counters < 1:
            raise ValueError(f"a sketch has at least one counter, not {self.counters}")
        self.slots = empty_slots(self.counters)
        self.cells = np.zeros((_ROWS, max(self.counters + 1, 4)), np.int64)
        self.cells[_SIZES, _CAPACITY] = self.counters
        _rebuild_kernel(self.slots, self.cells, 0)

    @property
    def total(self) -> int:
        return int(self.cells[_SIZES, _TOTAL])

    @property
    def held(self) -> Ints:
        """Hash, count and error of each held key, most frequent first."""
        return self.cells[[HASH, _COUNT, _ERROR], : self.cells[_SIZES, _HELD]]

    def count(self, hashes: Ints) -> None:
        """Counts rows in their order."""
        _count_kernel(self.slots, self.cells, key_hashes(hashes))

    def count_frequent(self, hashes: Ints) -> None:
        """Counts the rows of a batch, but may leave out a key that has less than 1/(2 · counters) of them.

        A key's count may then be too low, by less than that share of all rows, and the sketch surely holds only keys
        with more than 3/2 of `total / counters`.
        """
        least = len(hashes) // (_LEFT_OUT * self.counters)
        wanted = _BUCKETS_PER_COUNTER * self.counters if least > 1 else 1
        buckets = np.zeros(1 << (wanted - 1).bit_length(), np.int32)
        _count_frequent_kernel(self.slots, self.cells, key_hashes(hashes), least, buckets)

    def judge(self, hashes: Ints, threshold: float) -> NDArray[np.bool_]:
        """Counts rows, and returns for each whether its key was skewed at that row."""
        skewed = np.empty(len(hashes), np.bool_)
        _judge_kernel(self.slots, self.cells, key_hashes(hashes), threshold, skewed)
        return skewed

    def surely_each(self, hashes: Ints) -> Ints:
        """The number of rows that each of these keys surely had."""
        surely = np.empty(len(hashes), np.int64)
        _surely_kernel(self.slots, self.cells, key_hashes(hashes), surely)
        return surely

    def copy(self) -> "Sketch":
        """The sketch as it is now."""
        copied = copy(self)
        copied.slots, copied.cells = self.slots.copy(), self.cells.copy()
        return copied

    def skewed(self, hash_: int, threshold: float) -> bool:
        position = find(self.slots, self.cells, hash_)
        return position != EMPTY and is_skewed(self.cells, position, threshold)

    def all_skewed(self, threshold: float) -> Ints:
        """Hash and count of each key that is skewed now, most frequent first."""
        hashes, counts, errors = self.held
        surely = counts - errors
        return np.stack([hashes, counts])[:, (surely >= LEAST_SKEWED_ROWS) & (surely > threshold * self.total)]

    def halve(self, times: int) -> None:
        times = min(times, _MOST_HALVINGS)
        hashes, counts, errors = self.held
        surely = (counts - errors) >> times
        counts >>= times
        self._hold(np.stack([hashes, counts, counts - surely])[:, counts > 0], self.total >> times)

    def state(self) -> dict[str, Any]:
        return {"held": self.held, "total": self.total}

    @classmethod
    def restore(cls, counters: int, state: dict[str, Any]) -> "Sketch":
        """If the state has more counters than `counters`, the most frequent keys stay."""
        sketch = cls(counters)
        held = numbers(state["held"], 3, None)
        if held.shape[1] > counters:
            held = cls.restore(held.shape[1], state).held[:, :counters]  # looks at all of them
        if (np.diff(held[1]) > 0).any() or (held[1:] < 0).any():
            raise ValueError("counters out of order")  # kernels rely on the order
        sketch._hold(held, integer(state["total"]))
        if np.count_nonzero(sketch.slots != EMPTY) < held.shape[1]:  # 3 µs; numpy's unique takes 60
            raise ValueError("two counters of one key")
        return sketch

    def _hold(self, held: Ints, total: int) -> None:
        size = held.shape[1]
        self.cells[[HASH, _COUNT, _ERROR], :size] = held
        self.cells[_SIZES, _TOTAL] = total
        _rebuild_kernel(self.slots, self.cells, size)
