"""Where the rows of a skewed key may go: to single nodes, or as fragments to columns of the matrix of nodes.

A row that goes to one node needs all build rows of its key there. A fragment goes to all nodes of a column, and needs
on each only the share of the build rows that belongs to the node's matrix row: see `balajoin.core.matrix`. So a key
that needs many nodes is spread over columns with fewer copies of build rows, at the price of copies of probe rows.

A key with columns still uses its home as a single node, because a row costs no copy there, and so the other nodes of
the home's column. So all its nodes have all of its build rows or a share of them, and no node has to do with both.

Each key gets the kind of places by which fewer rows are copied. It changes the kind only if that spares a good part of
them, because the copies that it needs then are pulled first. Columns are used only if all rows fit at the level that
single nodes need, so the bound of `placement` holds.
"""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from balajoin.core.hashing import homes
from balajoin.core.matrix import matrix
from balajoin.routing.keytable import Ints
from balajoin.routing.placement import ROW, Flags, Placement, SkewedKeys, Weights, place, place_within
from balajoin.routing.sequence import node_sequences

_MUST_SPARE = 0.8
"""A key changes its kind of places if that leaves less than this share of its copied rows."""


@dataclass(frozen=True)
class Hot:
    """The skewed keys of a batch, wherever they may go. All arrays are by key."""

    hashes: Ints
    rows: Ints
    row_work: Ints
    """Of a row at a single node."""
    copy_work: Ints
    """Of all build rows at a node to which they are copied."""
    copied: Flags
    """By node: whether it has the copy that belongs to the key's kind of places. The home never counts."""
    in_columns: Flags
    """Whether that kind is columns."""

    @property
    def beside_home(self) -> Flags:
        """By node: whether it is in the column of the key's home."""
        nodes = self.copied.shape[1]
        columns = matrix(nodes)[1]
        beside: Flags = (homes(self.hashes, nodes) % columns)[:, None] == np.arange(nodes) % columns
        return beside


def place_hot(
    others: Ints, hot: Hot, weights: Weights, slack: float, may_fragment: bool
) -> tuple[SkewedKeys, Placement]:
    by_node = single_nodes(hot)
    placement = place(others, by_node, weights, slack)
    if not may_fragment or matrix(len(others))[0] == 1:
        return by_node, placement
    chosen = _spares_copies(hot, placement)
    if chosen.any():
        keys = _either(chosen, with_columns(hot), by_node)
        with_fragments = place_within(placement.limit, others, keys, weights)
        if with_fragments is not None:
            return keys, with_fragments
    return by_node, placement


def single_nodes(hot: Hot) -> SkewedKeys:
    nodes = hot.copied.shape[1]
    shape = hot.copied.shape
    return SkewedKeys(
        hot.hashes,
        hot.rows,
        places=node_sequences(hot.hashes, nodes),
        steps=np.full(shape, nodes, np.int32),
        row_work=np.broadcast_to(hot.row_work[:, None], shape).copy(),
        copy_work=np.broadcast_to(hot.copy_work[:, None], shape).copy(),
        copied=hot.copied & (hot.beside_home | ~hot.in_columns[:, None]),
    )


def with_columns(hot: Hot) -> SkewedKeys:
    nodes = hot.copied.shape[1]
    height, columns = matrix(nodes)
    beside = hot.beside_home
    at = np.arange(len(hot.hashes))[:, None]
    sequences = node_sequences(hot.hashes, nodes)
    singles = sequences[beside[at, sequences]].reshape(-1, height)
    others = node_sequences(hot.hashes, columns)[:, 1:]  # the first is the home's
    places = np.full(beside.shape, -1, np.int32)
    places[:, : columns + height - 1] = np.hstack([singles[:, :1], others, singles[:, 1:]])
    row_work, copy_work = hot.row_work[:, None], hot.copy_work[:, None]
    return SkewedKeys(
        hot.hashes,
        hot.rows,
        places,
        steps=np.where(beside, nodes, columns).astype(np.int32),
        row_work=np.where(beside, row_work, ROW + (row_work - ROW) // height),
        copy_work=np.where(beside, copy_work, -(-copy_work // height)),
        copied=hot.copied & (beside | hot.in_columns[:, None]),
    )


def used_nodes(keys: SkewedKeys, quotas: Ints) -> Flags:
    """By key and node: whether the node gets rows of the key."""
    used = quotas > 0
    nodes = quotas.shape[1]
    for entry, place_ in np.argwhere(used & (keys.steps < nodes)).tolist():
        used[entry, place_ :: keys.steps[entry, place_]] = True
    return used


def _spares_copies(hot: Hot, by_node: Placement) -> Flags:
    """Which keys should use columns. Their rows are taken to need as many nodes as without."""
    height, columns = matrix(hot.copied.shape[1])
    guests = by_node.quotas > 0
    guests[np.arange(len(guests)), homes(hot.hashes, guests.shape[1])] = False
    needed = guests.sum(axis=1)
    in_use = np.minimum(-(-needed // height), columns - 1)
    beside_home = np.maximum(needed - height * in_use, 0)
    fragmented_rows = hot.rows * (needed - beside_home) // (needed + 1)
    copied = hot.copy_work * (in_use + beside_home) + fragmented_rows * (ROW * (height - 1))
    share = np.where(hot.in_columns, 1 / _MUST_SPARE, _MUST_SPARE)
    spares: Flags = copied < share * hot.copy_work * needed
    return spares


def _either(chosen: Flags, these: SkewedKeys, those: SkewedKeys) -> SkewedKeys:
    def of(name: str) -> Any:
        mine, other = getattr(these, name), getattr(those, name)
        return np.where(chosen if mine.ndim == 1 else chosen[:, None], mine, other)

    return SkewedKeys(**{field.name: of(field.name) for field in fields(SkewedKeys)})
