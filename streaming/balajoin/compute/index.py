"""The hash index of a run of rows: built once, never changed, looked up by batches of rows.

Rows with equal hashes form a group and stand together in time order. So one look-up costs one probe of the table, a
binary search for the interval's start, and a walk over the matches. A key with a million rows does not slow others.
Building takes ~40 ns a row and looking up ~60 ns, both bound by cache misses.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from balajoin.core.blocks import binary, longs
from balajoin.core.kernels import kernel
from balajoin.core.spec import Window

Ints = NDArray[np.int64]
Shorts = NDArray[np.int32]
Bytes = NDArray[np.uint8]

_EMPTY = -1


@dataclass(frozen=True)
class Index:
    slots: Shorts  # open addressing, power of two: group number or -1
    hashes: Ints  # of each group
    starts: Shorts  # of each group in `rows`, and the end of the last
    rows: Shorts  # row numbers, grouped, in time order within a group


@kernel
def _group_kernel(hashes: Ints, order: Ints, slots: Shorts) -> tuple[Ints, Shorts, Shorts]:
    n = len(hashes)
    mask = len(slots) - 1
    group_of = np.empty(n, np.int32)
    group_hash = np.empty(n, np.int64)
    counts = np.zeros(n + 1, np.int32)
    groups = 0
    for i in range(n):
        h = hashes[i]
        slot = h & mask
        while True:
            group = slots[slot]
            if group < 0:
                group = groups
                slots[slot] = group
                group_hash[group] = h
                groups += 1
                break
            if group_hash[group] == h:
                break
            slot = (slot + 1) & mask
        group_of[i] = group
        counts[group] += 1
    starts = np.empty(groups + 1, np.int32)
    at = np.int32(0)
    for group in range(groups):
        starts[group] = at
        at += counts[group]
        counts[group] = starts[group]
    starts[groups] = at
    rows = np.empty(n, np.int32)
    for k in range(n):
        i = order[k]
        group = group_of[i]
        rows[counts[group]] = i
        counts[group] += 1
    return group_hash[:groups].copy(), starts, rows


@kernel
def _slots_kernel(group_hash: Ints, slots: Shorts) -> None:
    mask = len(slots) - 1
    for group in range(len(group_hash)):
        slot = group_hash[group] & mask
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = group


@kernel
def _match_kernel(
    first: int, skipped: int, lefts: Shorts, rights: Shorts, hashes: Ints, times: Ints, lower: int, upper: int,
    key_ends: Shorts, keys: Bytes, slots: Shorts, group_hash: Ints, starts: Shorts, rows: Shorts,
    other_times: Ints, other_key_ends: Shorts, other_keys: Bytes,
) -> tuple[int, int, int]:  # fmt: skip
    """Fills `lefts` and `rights` with pairs, from row `first` on, without that row's first `skipped` candidates.

    Returns `first` and `skipped` for the next call, and the number of pairs.
    """
    mask = len(slots) - 1
    capacity = len(lefts)
    pairs = 0
    for i in range(first, len(hashes)):
        h = hashes[i]
        slot = h & mask
        group = slots[slot]
        while group >= 0 and group_hash[group] != h:
            slot = (slot + 1) & mask
            group = slots[slot]
        if group < 0:
            continue
        start = starts[group]
        end = starts[group + 1]
        earliest = times[i] + lower
        latest = times[i] + upper
        low = start
        high = end
        while low < high:
            middle = (low + high) >> 1
            if other_times[rows[middle]] < earliest:
                low = middle + 1
            else:
                high = middle
        begin = low
        if i == first:
            low += skipped
        key_at = key_ends[i]
        key_length = key_ends[i + 1] - key_at
        for k in range(low, end):
            row = rows[k]
            if other_times[row] > latest:
                break
            other_at = other_key_ends[row]
            if other_key_ends[row + 1] - other_at != key_length:
                continue
            same = True
            for b in range(key_length):
                if keys[key_at + b] != other_keys[other_at + b]:
                    same = False
                    break
            if not same:
                continue
            if pairs == capacity:
                return i, k - begin, pairs
            lefts[pairs] = i
            rights[pairs] = row
            pairs += 1
    return len(hashes), 0, pairs


@kernel
def _rows_kernel(wanted: Ints, slots: Shorts, group_hash: Ints, starts: Shorts, rows: Shorts) -> Shorts:
    mask = len(slots) - 1
    found = np.empty(len(wanted), np.int32)
    total = 0
    for i in range(len(wanted)):
        slot = wanted[i] & mask
        group = slots[slot]
        while group >= 0 and group_hash[group] != wanted[i]:
            slot = (slot + 1) & mask
            group = slots[slot]
        found[i] = group
        if group >= 0:
            total += starts[group + 1] - starts[group]
    out = np.empty(total, np.int32)
    at = 0
    for group in found:
        if group >= 0:
            for k in range(starts[group], starts[group + 1]):
                out[at] = rows[k]
                at += 1
    return out


def rows_with(index: Index, hashes: Ints) -> Shorts:
    """The numbers of all rows with one of these distinct hashes."""
    return _rows_kernel(hashes, index.slots, index.hashes, index.starts, index.rows)


def build(hashes: Ints, times: Ints) -> Index:
    """Indexes rows by hash, and by time among equal hashes."""
    n = len(hashes)
    if n != len(times):
        raise ValueError(f"{n} hashes but {len(times)} times")
    in_order = n < 2 or bool(np.all(times[1:] >= times[:-1]))
    order = np.arange(n) if in_order else np.argsort(times, kind="stable")
    slots = _empty_slots(n)
    group_hash, starts, rows = _group_kernel(hashes, order, slots)
    if len(slots) > 4 * max(len(group_hash), 8):  # many rows a key: a small table is cheaper to store and to search
        slots = _empty_slots(len(group_hash))
        _slots_kernel(group_hash, slots)
    return Index(slots, group_hash, starts, rows)


def check(index: Index, num_rows: int) -> None:
    """Raises a ValueError if a look-up would read outside an array, or never end. Takes ~1 ns a row."""
    slots, groups = index.slots, len(index.hashes)
    size = len(slots)
    if size == 0 or size & (size - 1):
        raise ValueError(f"an index with {size} slots, which is no power of two")
    if slots.max() >= groups or slots.min() != _EMPTY:
        raise ValueError("an index with slots that name no group, or with none that is empty")
    starts = index.starts
    if len(starts) != groups + 1 or starts[0] != 0 or starts[-1] != len(index.rows) or np.any(starts[1:] < starts[:-1]):
        raise ValueError("an index with groups that begin or end nowhere")
    if len(index.rows) != num_rows or (num_rows and (index.rows.min() < 0 or index.rows.max() >= num_rows)):
        raise ValueError("an index of other rows")


def _empty_slots(groups: int) -> Shorts:
    return np.full(1 << max(3, (2 * groups - 1).bit_length()), _EMPTY, np.int32)


def matches(
    looking: pa.Table, index: Index, rows: pa.Table, window: Window, chunk: int = 1 << 16
) -> Iterator[tuple[Shorts, Shorts]]:
    """Row numbers of the pairs that match by key and within the window, in chunks of bounded size.

    Both tables are single-chunk, as `blocks.concat` gives them.
    """
    hashes, times = longs(looking, "hash"), longs(looking, "time")
    other_times = longs(rows, "time")
    key_ends, keys = binary(looking, "key")
    other_key_ends, other_keys = binary(rows, "key")
    first = skipped = 0
    while first < len(hashes):
        lefts = np.empty(chunk, np.int32)
        rights = np.empty(chunk, np.int32)
        first, skipped, pairs = _match_kernel(
            first, skipped, lefts, rights, hashes, times, window.lower, window.upper, key_ends, keys,
            index.slots, index.hashes, index.starts, index.rows, other_times, other_key_ends, other_keys,
        )  # fmt: skip
        if pairs:
            yield lefts[:pairs], rights[:pairs]
