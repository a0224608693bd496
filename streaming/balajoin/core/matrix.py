"""Symmetric Fragment Replicate: the nodes form a matrix, with node j in row j // columns and column j % columns.

A probe row goes to all nodes of one column. A build row belongs to one matrix row, and on each node a probe row meets
only the build rows of that node's matrix row. So each pair meets on exactly one node.
"""

from math import isqrt

import numpy as np
from numpy.typing import NDArray

from balajoin.core.hashing import mix
from balajoin.core.kernels import kernel


def matrix(nodes: int) -> tuple[int, int]:
    """The number of rows and columns: as square as the number of nodes allows, and never more rows than columns."""
    rows = next(rows for rows in range(isqrt(nodes), 0, -1) if nodes % rows == 0)
    return rows, nodes // rows


@kernel
def _fragment_kernel(
    partitions: NDArray[np.int32], offsets: NDArray[np.int64], rows: int, out: NDArray[np.int32]
) -> None:
    for i in range(len(offsets)):
        position = mix(np.uint64(offsets[i]), partitions[i] + 1)
        out[i] = np.int32(position % np.uint64(rows))


def fragment_of(partitions: NDArray[np.int32], offsets: NDArray[np.int64], rows: int) -> NDArray[np.int32]:
    """The matrix row of each build row, from its partition and offset: the same on every node and in a replay."""
    if partitions.shape != offsets.shape:
        raise TypeError(f"{len(partitions)} partitions do not fit {len(offsets)} offsets")
    out = np.empty(len(offsets), np.int32)
    _fragment_kernel(partitions, offsets, rows, out)
    return out


@kernel
def _replicate_kernel(
    targets: NDArray[np.int32],
    fragmented: NDArray[np.bool_],
    height: int,
    columns: int,
    rows: NDArray[np.int32],
    out: NDArray[np.int32],
) -> None:
    at = 0
    for i in range(len(targets)):
        for line in range(height if fragmented[i] else 1):
            rows[at] = i
            out[at] = targets[i] + line * columns
            at += 1


def replicate(
    targets: NDArray[np.int32], fragmented: NDArray[np.bool_], nodes: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Sends each fragmented row to all nodes of a column, which is its target, and any other row to its target.

    Returns the number of the row behind each copy, and its node.
    """
    if targets.shape != fragmented.shape:
        raise TypeError(f"{len(targets)} targets do not fit {len(fragmented)} rows")
    height, columns = matrix(nodes)
    sent = len(targets) + int(np.count_nonzero(fragmented)) * (height - 1)
    rows, out = np.empty(sent, np.int32), np.empty(sent, np.int32)
    _replicate_kernel(targets, fragmented, height, columns, rows, out)
    return rows, out
