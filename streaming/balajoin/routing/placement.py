"""Places all skewed rows of a batch at once: no node has much more work than others, and few keys need copies.

Work is counted in units of 1/256 row. Each skewed key has a number of rows, places where they may go, the work of a row
there, and the work that a copy of its build rows is to a node that has none. A place is one node or several; a row goes
to all of them, and is work to each. Rows that are not skewed go home, whatever that does to the loads, and copies that
exist already get their build rows in any case. So that work is *given*. Each node has a *weight*, which is one on
average. Its *load* is its work divided by its weight.

`place` looks for the lowest *level* at which all skewed rows fit, in steps of 1/32 of the mean load, and then allows a
share `slack` more, which spares copies. At a level, keys are placed from the one with the most work to the one with the
least. The rows of a key go to its places in their order: first to its home and to places that have copies, then to
those with much room, then to others. A place takes rows until one of its nodes has reached the level. It is used only
if all its nodes are below the level with the copies as well. At last the rows of each key, from the one with the least
work on, are spread evenly over the places that got any. Places with copies that are not needed get none, and lose them
in time.

*Bound.* Let all places be single nodes. Let `given` be the largest load of a node before skewed rows are placed, `mean`
the mean of the given work and of all skewed rows, `copies` the work of one copy of every skewed key, `row` that of the
heaviest row, and `least` the smallest weight. After placing, the largest load is

    most <= max(given, (1 + slack) * (33/32 * mean + copies + 3) + row / least + 2)

*Proof.* A node j with weight w gets a row only while its work is below w times the level, with the copy that the row
needs. So afterwards each load is at most level + row / least, or as it was given. It remains to bound the level. Let
`l` be a level at which the rows do not fit: all nodes have been tried for some key, and rows are left. Each node then
has work of at least l * w - 1, or no copy of this key and at least l * w - 1 less this key's copy. In both cases its
work without the copies made now is at least l * w - 1 - copies. The sum over all nodes is at most that of all given
work and all skewed rows, without the rows that are left: n * (l - 1 - copies) < n * mean. So every level of at least
mean + copies + 1 fits. The lowest step that fits is therefore at most 33/32 * mean + copies + 3, with the rounding.
Slack comes on top: at the higher level rows fit too, or the level without slack is used. Spreading a key's rows evenly
raises no load above the largest of its places before, but for rounding: at that level each has room for its rows.

`place_within` takes places of several nodes as well, and fills none above a level that it is told. `grid` tells it the
level that single nodes need, and otherwise uses these. So the bound holds for both.

Each source keeps the bound for its own loads, so the sum of all sources is at most the sum of their bounds.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from balajoin.core.hashing import homes, mix
from balajoin.core.kernels import inlined, kernel
from balajoin.routing.arrays import key_hashes
from balajoin.routing.keytable import EMPTY, HASH, Ints, Slots, empty_slots, refill, slot_of

ROW = 256
"""The work of taking in one row."""
_STEPS = 32

Entries = NDArray[np.int32]
Flags = NDArray[np.bool_]
Places = NDArray[np.int32]
Weights = NDArray[np.float64]


@dataclass(frozen=True)
class SkewedKeys:
    """The skewed keys of a batch, and the places where their rows may go. All arrays are by key.

    A place is the nodes `place`, `place + step`, …: one node, if the step is the number of nodes. A row goes to all
    nodes of one place. The places of a key share no node.
    """

    hashes: Ints
    rows: Ints
    places: Places
    """In the order in which the key uses them, its home first, and then -1."""
    steps: Places
    """By place."""
    row_work: Ints
    """By place: the work of a row on each of its nodes."""
    copy_work: Ints
    """By node: the work of the copy of build rows that rows need there."""
    copied: Flags
    """By node: whether it has that copy. The home has the rows themselves."""


@dataclass(frozen=True)
class Placement:
    quotas: Ints
    """The number of rows, by key and place."""
    loads: Ints
    """By node, with all rows and copies."""
    limit: int
    """The highest level that was allowed."""


@inlined
def _room(level: int, weights: Weights, loads: Ints, copies: Ints, place: int, step: int) -> int:
    """How much work each node of the place can take until one of them has reached the level."""
    room: int = int(level * weights[place]) - loads[place] - copies[place]
    for node in range(place + step, len(loads), step):
        room = min(room, int(level * weights[node]) - loads[node] - copies[node])
    return room


@kernel
def _fill_kernel(
    level: int,
    weights: Weights,
    order: Ints,
    rows: Ints,
    places: Places,
    steps: Places,
    row_work: Ints,
    copies: Ints,
    loads: Ints,
    quotas: Ints,
) -> bool:
    """Whether all rows fit at this level. Adds their work to `loads`. `copies` is the work of copies still to make."""
    quotas[:] = 0
    for entry in order:
        left = rows[entry]
        # Nodes with copies first; then those with much room, so that few copies are made; then all others.
        for least in (0, level // 2, 1):
            for place in places[entry]:
                if left == 0 or place < 0:
                    break
                step, work = steps[entry, place], row_work[entry, place]
                has_copies = copies[entry, place::step].max() <= 0
                if quotas[entry, place] == 0 and has_copies == (least == 0):
                    room = _room(level, weights, loads, copies[entry], place, step)
                    if room > 0 and room >= min(least, left * work):
                        taken = min(left, (room + work - 1) // work)
                        quotas[entry, place] = taken
                        loads[place::step] += copies[entry, place::step] + taken * work
                        left -= taken
        if left > 0:
            return False
    return True


@kernel
def _share_out(
    level: int,
    weights: Weights,
    rows: int,
    places: Places,
    steps: Places,
    row_work: Ints,
    nothing: Ints,
    loads: Ints,
    quotas: Ints,
    shares: Ints,
) -> int:
    """Shares out rows of one key to the places that it uses, so that no node passes the level. Returns the rest."""
    for place in places:
        if place < 0:
            break
        if quotas[place] > 0:
            room = max(_room(level, weights, loads, nothing, place, steps[place]), 0)
            shares[place] = min(rows, room // row_work[place])
            rows -= shares[place]
    return rows


@kernel
def _even_out_kernel(
    weights: Weights,
    order: Ints,
    rows: Ints,
    places: Places,
    steps: Places,
    row_work: Ints,
    loads: Ints,
    quotas: Ints,
) -> None:
    """Spreads the rows of each key evenly over the places that it uses: at the lowest level at which they fit."""
    nothing = np.zeros_like(loads)
    shares = np.zeros_like(loads)
    for entry in order[::-1]:
        used = np.flatnonzero(quotas[entry])
        for place in used:
            loads[place :: steps[entry, place]] -= quotas[entry, place] * row_work[entry, place]
        key = (rows[entry], places[entry], steps[entry], row_work[entry], nothing, loads, quotas[entry], shares)
        low, high = 0, 1
        while _share_out(high, weights, *key) > 0:
            low, high = high, 2 * high
        while high - low > 1:
            level = (low + high) // 2
            if _share_out(level, weights, *key) > 0:
                low = level
            else:
                high = level
        _share_out(high, weights, *key)
        for place in used:
            quotas[entry, place] = shares[place]
            loads[place :: steps[entry, place]] += shares[place] * row_work[entry, place]


class _Filling:
    """One batch, which is filled in at several levels."""

    def __init__(self, others: Ints, keys: SkewedKeys, weights: Weights) -> None:
        entries, nodes = np.arange(len(keys.hashes)), len(others)
        home = homes(keys.hashes, nodes)
        work = keys.rows * keys.row_work[entries, home]
        copies = np.where(keys.copied, 0, keys.copy_work)
        copies[entries, home] = 0
        self._given = others + (keys.copied * keys.copy_work).sum(axis=0)
        self._weights = weights
        self._fixed = np.lexsort((keys.hashes, -work)), keys.rows, keys.places, keys.steps, keys.row_work
        self._copies = copies
        self._quotas = np.zeros((len(entries), nodes), np.int64)
        self._mean = (int(self._given.sum()) + int(work.sum())) // nodes + 1

    def _at(self, level: int) -> Ints | None:
        """The loads, if all rows fit."""
        loads = self._given.copy()
        fit = _fill_kernel(level, self._weights, *self._fixed, self._copies, loads, self._quotas)
        return loads if fit else None

    def lowest(self, limit: int | None = None) -> int | None:
        """The lowest level at which all rows fit; None if it is above the limit."""
        level = self._mean
        while limit is None or level <= limit:
            if self._at(level) is not None:
                return level
            level += self._mean // _STEPS + 1
        return None

    def placement(self, lowest: int, limit: int) -> Placement:
        # At a higher level the rows may not fit: then other keys come to have copies.
        loads = self._at(limit) if limit > lowest else None
        if loads is None:
            loads = self._at(lowest)
            assert loads is not None
        _even_out_kernel(self._weights, *self._fixed, loads, self._quotas)
        return Placement(self._quotas, loads, limit)


def place(others: Ints, keys: SkewedKeys, weights: Weights, slack: float) -> Placement:
    """Places all rows. `others` is the work of all other rows, and the weights have a mean of one."""
    filling = _Filling(others, keys, weights)
    lowest = filling.lowest()
    assert lowest is not None
    return filling.placement(lowest, lowest + int(lowest * slack))


def place_within(limit: int, others: Ints, keys: SkewedKeys, weights: Weights) -> Placement | None:
    """The same, but no node is filled above this level; None if that cannot be."""
    filling = _Filling(others, keys, weights)
    lowest = filling.lowest(limit)
    return None if lowest is None else filling.placement(lowest, limit)


@dataclass(frozen=True)
class Numbered:
    """The rows of a batch, as `Assignment` takes them, and how many there are."""

    targets: Entries
    """The home of each row; after rows are handed out, the place of a skewed one."""
    entries: Entries
    keys: Ints
    rows: Ints
    """Of each key."""
    others: Ints
    """Rows of no such key, by node."""


@kernel
def _number_kernel(
    slots: Slots, cells: Ints, hashes: Ints, targets: Entries, entries: Entries, rows: Ints, others: Ints
) -> None:
    nodes = np.uint64(len(others))
    for i in range(len(hashes)):
        mixed = mix(np.uint64(hashes[i]), 0)
        entry = slots[slot_of(slots, cells, hashes[i], mixed)]
        node = np.int32(mixed % nodes)
        entries[i] = entry
        targets[i] = node
        if entry == EMPTY:
            others[node] += 1
        else:
            rows[entry] += 1


def number(hashes: Ints, keys: Ints, nodes: int) -> Numbered:
    """Finds the rows of those of the keys that the batch has."""
    slots, cells = empty_slots(len(keys)), np.empty((2, len(keys)), np.int64)
    cells[HASH] = keys
    refill(slots, cells, len(keys))
    targets, entries = np.empty(len(hashes), np.int32), np.empty(len(hashes), np.int32)
    rows, others = np.zeros(len(keys), np.int64), np.zeros(nodes, np.int64)
    _number_kernel(slots, cells, key_hashes(hashes), targets, entries, rows, others)
    here = rows > 0
    if not here.all():
        entries = np.append(np.cumsum(here) - 1, EMPTY).astype(np.int32)[entries]  # entry -1 takes the last
    return Numbered(targets, entries, keys[here], rows[here], others)


@kernel
def _hand_out_kernel(places: Places, quotas: Ints, entries: Entries, targets: Entries) -> None:
    at = np.zeros(len(places), np.int64)
    for i in range(len(entries)):
        entry = entries[i]
        if entry != EMPTY:
            while quotas[entry, places[entry, at[entry]]] == 0:
                at[entry] += 1
            place = places[entry, at[entry]]
            quotas[entry, place] -= 1
            targets[i] = place


def hand_out(batch: Numbered, keys: SkewedKeys, quotas: Ints) -> None:
    """Sends a run of rows of each key to each of its places, in the order in which it uses them."""
    _hand_out_kernel(keys.places, quotas.copy(), batch.entries, batch.targets)
