"""The paper's Algorithm 2, BalancedPartition: each skewed key of a source uses few nodes, but all nodes get equal load.

In three places the paper leaves a choice, contradicts itself, or breaks its own Theorem 1 if taken literally:

- *Several nodes of U(x) are least loaded*: the row goes to the node last used if it is one of them, else to the first
  in sequence order. If it always went to the first, two equal nodes would take turns for ever while a third stays
  empty: the least loaded node would never be the last used one, and U(x) would never grow.
- *UpdateU when U(x) already has all nodes*: literally, the row goes to the last node of the sequence, whatever its
  load. Here it stays with the least loaded node, which is the one last used.
- *When U(x) grows*: by the pseudocode, only if the least loaded node of U(x) is the one last used. By the paper's
  prose, also if another node is less loaded but would still leave B above ε. This module follows the pseudocode: the
  proof below needs no more, and each node of U(x) costs a copy of the key's build rows. Of 40 keys with Zipf(1.25), a
  skewed key has 4.9 of 16 nodes at ε = 0.2, by the prose 6.4 (of 8 nodes 3.1 and 3.4), and B is within ε by both.

With these choices, after every row `least >= (1 - ε) * (most - extensions)`, where `extensions` is how often any U(x)
grew: a row leaves B within ε; or extends a U(x); or goes to a node with less load than another, and so does not raise
`most`. Hence B <= ε + (1 - ε) * extensions / most, for each source and for the sum of all sources: Theorem 1 with the
cost of the first rows.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balajoin.core.hashing import mix
from balajoin.core.kernels import inlined, kernel
from balajoin.routing.arrays import key_hashes, numbers
from balajoin.routing.keytable import EMPTY, HASH, Ints, Slots, empty_slots, enter, find, refill, slot_of
from balajoin.routing.sequence import Sequences, extend, extend_to

# Rows of `cells`, by entry: |U(x)|, the node last used, whether this call placed a row of the key.
_SIZE, _LAST, _USED = 2, 3, 4
_ROWS = 5
# Positions in `extremes`: the largest and the smallest load, the number of nodes with the smallest, a load that all
# other nodes reach, and the number of entries.
_MOST, _LEAST, _AT_LEAST, _OTHERS, _ENTRIES = 0, 1, 2, 3, 4
_BEYOND = 1 << 62


@inlined
def entry_of(slots: Slots, cells: Ints, extremes: Ints, hash_: int, mixed: np.uint64) -> int:
    """The key's entry, made if there is none; -1 if there is no room. `mixed` is `mix(hash_, 0)`."""
    slot = slot_of(slots, cells, hash_, mixed)
    entry = int(slots[slot])
    if entry == EMPTY:
        entry = int(extremes[_ENTRIES])
        if entry == cells.shape[1]:
            return EMPTY
        extremes[_ENTRIES] += 1
        enter(slots, cells, entry, hash_, slot)
        cells[_SIZE, entry] = 0
    cells[_USED, entry] = 1
    return entry


@inlined
def place(cells: Ints, sequences: Sequences, loads: Ints, extremes: Ints, entry: int, balance: float) -> int:
    """The node for the next row of the key at `entry`.

    Nearly every row stays with the node last used, which is not the least loaded. This case is decided here, inline: 21
    ns a row. To call `_place` for every row took 36 ns.
    """
    node = int(cells[_LAST, entry])
    load = loads[node] + 1
    most = max(extremes[_MOST], load)
    least = extremes[_LEAST]
    if load <= least + 1 or cells[_SIZE, entry] == 0 or (most - least) / most > balance:
        return _place(cells, sequences, loads, extremes, entry, balance)
    loads[node] = load
    extremes[_MOST] = most
    return node


@kernel
def _place(cells: Ints, sequences: Sequences, loads: Ints, extremes: Ints, entry: int, balance: float) -> int:
    node = int(cells[_LAST, entry])
    if cells[_SIZE, entry] == 0 or _balance_factor_with(loads, extremes, node) > balance:
        node = _another(cells, sequences, loads, entry, node)
        cells[_LAST, entry] = node
    _load(loads, extremes, node)
    return node


@kernel
def _another(cells: Ints, sequences: Sequences, loads: Ints, entry: int, last: int) -> int:
    size = cells[_SIZE, entry]
    if size == 0:
        return _update_u(cells, sequences, entry)
    node = _least_loaded(sequences, loads, entry, size, last)
    if node == last and size < len(loads):
        return _update_u(cells, sequences, entry)
    return node


@kernel
def _update_u(cells: Ints, sequences: Sequences, entry: int) -> int:
    size = cells[_SIZE, entry]
    extend(sequences, entry, size, cells[HASH, entry])
    cells[_SIZE, entry] = size + 1
    return int(sequences[entry, size])


@kernel
def _balance_factor_with(loads: Ints, extremes: Ints, node: int) -> float:
    """B with one more row on the node."""
    most = max(extremes[_MOST], loads[node] + 1)
    least = extremes[_LEAST]
    if loads[node] == least and extremes[_AT_LEAST] == 1:
        least += 1
    return float((most - least) / most)


@kernel
def _least_loaded(sequences: Sequences, loads: Ints, entry: int, size: int, last: int) -> int:
    node = last
    for i in range(size):
        if loads[sequences[entry, i]] < loads[node]:
            node = int(sequences[entry, i])
    return node


@kernel
def _load(loads: Ints, extremes: Ints, node: int) -> None:
    load = loads[node] + 1
    loads[node] = load
    extremes[_MOST] = max(extremes[_MOST], load)
    if load - 1 == extremes[_LEAST]:
        if extremes[_AT_LEAST] > 1:
            extremes[_AT_LEAST] -= 1
            extremes[_OTHERS] = load
        elif load < extremes[_OTHERS]:
            extremes[_LEAST] = load
        else:
            _find_least(loads, extremes)


@kernel
def _find_least(loads: Ints, extremes: Ints) -> None:
    """Called only when the last of the least loaded nodes gets as many rows as others have."""
    least, others, at_least = loads[0], _BEYOND, 0
    for load in loads:
        if load < least:
            others = least
            least = load
            at_least = 1
        elif load == least:
            at_least += 1
        elif load < others:
            others = load
    extremes[_LEAST] = least
    extremes[_AT_LEAST] = at_least
    extremes[_OTHERS] = others


@kernel
def _restore_kernel(slots: Slots, cells: Ints, sequences: Sequences, size: int) -> None:
    refill(slots, cells, size)
    for entry in range(size):
        extend_to(sequences, entry, cells[_SIZE, entry], cells[HASH, entry])


@kernel
def _assign_kernel(
    slots: Slots,
    cells: Ints,
    sequences: Sequences,
    loads: Ints,
    extremes: Ints,
    balance: float,
    hashes: Ints,
    skewed: NDArray[np.bool_],
    targets: NDArray[np.int32],
    entries: NDArray[np.int32],
) -> bool:
    """Whether there was room for the U(x) of all keys."""
    for i in range(len(hashes)):
        mixed = mix(np.uint64(hashes[i]), 0)
        if skewed[i]:
            entry = entry_of(slots, cells, extremes, hashes[i], mixed)
            if entry == EMPTY:
                return False
            entries[i] = entry
            targets[i] = place(cells, sequences, loads, extremes, entry, balance)
        else:
            entries[i] = EMPTY
            targets[i] = np.int32(mixed % np.uint64(len(loads)))
    return True


@dataclass
class BalancedPartition:
    """Loads and U(x) of one source. At most `capacity` keys have a U(x); others must be forgotten to make room."""

    nodes: int
    balance: float
    capacity: int
    slots: Slots = field(init=False, repr=False)
    cells: Ints = field(init=False, repr=False)
    sequences: Sequences = field(init=False, repr=False)
    loads: Ints = field(init=False)
    extremes: Ints = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.nodes < 1:
            raise ValueError(f"there must be at least one node, not {self.nodes}")
        self.slots = empty_slots(self.capacity)
        self.cells = np.zeros((_ROWS, self.capacity), np.int64)
        self.sequences = np.zeros((self.capacity, self.nodes), np.int32)
        self.loads = np.zeros(self.nodes, np.int64)
        self.extremes = np.array([0, 0, self.nodes, 0, 0], np.int64)

    def assign(
        self, hashes: Ints, skewed: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]:
        """Targets, entries and keys of an assignment: skewed rows go by Algorithm 2, others to their home."""
        if skewed.shape != hashes.shape or skewed.dtype != np.bool_:
            raise TypeError(f"skewed must be one bool for each of {len(hashes)} rows")
        targets, entries = np.empty(len(hashes), np.int32), np.empty(len(hashes), np.int32)
        if not _assign_kernel(*self.arrays, self.balance, key_hashes(hashes), skewed, targets, entries):
            raise ValueError(f"more than {self.capacity} keys are skewed: there is no room for their nodes")
        return targets, *self.used_keys(entries)

    @property
    def arrays(self) -> tuple[Slots, Ints, Sequences, Ints, Ints]:
        """For kernels that place row by row."""
        return self.slots, self.cells, self.sequences, self.loads, self.extremes

    def used_keys(self, entries: NDArray[np.int32]) -> tuple[NDArray[np.int32], Ints]:
        """`entries`, of rows placed since the last call, as indexes into the keys placed since then; and these keys."""
        used = self.cells[_USED, : self.extremes[_ENTRIES]] == 1
        self.cells[_USED] = 0
        if not used.all():
            numbers = np.append(np.cumsum(used) - 1, EMPTY).astype(np.int32)  # entry -1 takes the last
            entries = numbers[entries]
        return entries, self.keys[used]

    @property
    def is_full(self) -> bool:
        return bool(self.extremes[_ENTRIES] == self.capacity)

    @property
    def keys(self) -> Ints:
        """Hashes of the keys that have a U(x)."""
        return self.cells[HASH, : self.extremes[_ENTRIES]]

    def nodes_of(self, hash_: int) -> tuple[int, ...]:
        """U(x), home first; empty if the key has none."""
        entry = find(self.slots, self.cells, hash_)
        return () if entry == EMPTY else tuple(self.sequences[entry, : self.cells[_SIZE, entry]].tolist())

    def halve(self, times: int) -> None:
        self._set_loads(self.loads >> min(times, 63))

    def keep(self, kept: NDArray[np.bool_]) -> None:
        """Forgets U(x) of all other keys. A forgotten key that is skewed again begins at its home."""
        self._enter(self.cells[:, : len(kept)][:, kept])

    def state(self) -> dict[str, Any]:
        size = self.extremes[_ENTRIES]
        return {"loads": self.loads, "sets": self.cells[[HASH, _SIZE, _LAST], :size]}

    def load_state(self, state: dict[str, Any], only: Ints | None = None) -> None:
        """Restores the loads, and U(x) of all keys or of those in `only`, as far as there is room.

        A state for another number of nodes is ignored: loads begin at zero, and every key at its home.
        """
        loads, sets = numbers(state["loads"], None), numbers(state["sets"], 3, None)
        if len(loads) != self.nodes:
            return
        if (loads < 0).any():
            raise ValueError("a negative load")
        if ((sets[1] < 1) | (sets[1] > self.nodes) | (sets[2] < 0) | (sets[2] >= self.nodes)).any():
            raise ValueError("a U(x) of nodes that there are not")  # a kernel would write there
        self._set_loads(loads)
        if only is not None:
            sets = sets[:, np.isin(sets[0], only)]
        sets = sets[:, : self.capacity]
        cells = np.zeros((_ROWS, sets.shape[1]), np.int64)
        cells[[HASH, _SIZE, _LAST]] = sets
        self._enter(cells)

    def _enter(self, cells: Ints) -> None:
        size = cells.shape[1]
        self.cells[:, :size] = cells
        self.extremes[_ENTRIES] = size
        _restore_kernel(self.slots, self.cells, self.sequences, size)

    def _set_loads(self, loads: Ints) -> None:
        self.loads[:] = loads
        self.extremes[_MOST] = self.loads.max()
        _find_least(self.loads, self.extremes)
