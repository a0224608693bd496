"""A hash table in two plain arrays: from a key's hash to its position, for kernels that look up every row.

`slots` holds positions or -1, with linear probing. At each position, row `HASH` of `cells` holds the key's hash and row
`PLACE` its slot; further rows belong to the caller. Nearly all slots stay empty: then a look-up of a missing key reads
one slot, and a removal moves no other key. A sketch of uniform keys, with a look-up and a removal each row, takes 29 ns
a row with 4 slots a key, 19 with 8 and 16 with 16: the difference is mispredicted branches.

Kernels here and in the modules that use them do two things for speed. They take few, plain arrays: with a NamedTuple of
arrays the same sketch took ten times as long, all of it numba's reference counting. And functions that run for every
row are `inline="always"`: LLVM alone leaves them as calls, and the sketch takes 34 ns a row instead of 16.
"""

import numpy as np
from numpy.typing import NDArray

from balajoin.core.hashing import mix
from balajoin.core.kernels import inlined, kernel

Ints = NDArray[np.int64]
Slots = NDArray[np.int32]

EMPTY = -1
HASH, PLACE = 0, 1
_SLOTS_PER_KEY = 16


def empty_slots(capacity: int) -> Slots:
    return np.full(1 << (_SLOTS_PER_KEY * max(capacity, 1) - 1).bit_length(), EMPTY, np.int32)


@inlined
def slot_of(slots: Slots, cells: Ints, hash_: int, mixed: np.uint64) -> int:
    """The slot of the key, or the empty slot where it belongs. `mixed` is `mix(hash_, 0)`."""
    mask = len(slots) - 1
    slot = int(np.int64(mixed >> np.uint64(32))) & mask
    while slots[slot] != EMPTY and cells[HASH, slots[slot]] != hash_:
        slot = (slot + 1) & mask
    return slot


@kernel
def find(slots: Slots, cells: Ints, hash_: int) -> int:
    """The key's position, or -1."""
    return int(slots[slot_of(slots, cells, hash_, mix(np.uint64(hash_), 0))])


@inlined
def enter(slots: Slots, cells: Ints, position: int, hash_: int, slot: int) -> None:
    cells[HASH, position] = hash_
    cells[PLACE, position] = slot
    slots[slot] = position


@kernel
def remove(slots: Slots, cells: Ints, slot: int) -> None:
    """Empties the slot and closes the gap."""
    mask = len(slots) - 1
    gap = slot
    at = (slot + 1) & mask
    while slots[at] != EMPTY:
        position = slots[at]
        wanted = np.int64(mix(np.uint64(cells[HASH, position]), 0) >> np.uint64(32)) & mask
        if (at - wanted) & mask >= (at - gap) & mask:
            slots[gap] = position
            cells[PLACE, position] = gap
            gap = at
        at = (at + 1) & mask
    slots[gap] = EMPTY


@kernel
def refill(slots: Slots, cells: Ints, size: int) -> None:
    """Clears the table and enters the keys of the first `size` positions."""
    slots[:] = EMPTY
    for position in range(size):
        hash_ = cells[HASH, position]
        enter(slots, cells, position, hash_, slot_of(slots, cells, hash_, mix(np.uint64(hash_), 0)))
