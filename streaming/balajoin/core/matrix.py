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


def replicate(
    targets: NDArray[np.int32], fragmented: NDArray[np.bool_], first_column: int, nodes: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Sends each fragmented row to all nodes of a column, and any other row to its target. Columns take turns.

    The first fragmented row goes to `first_column`. Returns the number of the row behind each copy, and its node.
    """
    height, columns = matrix(nodes)
    copies = np.where(fragmented, height, 1)
    rows = np.repeat(np.arange(len(targets), dtype=np.int32), copies)
    copy = np.arange(len(rows)) - np.repeat(np.cumsum(copies) - copies, copies)
    column = (first_column + np.cumsum(fragmented) - 1) % columns
    return rows, np.where(fragmented[rows], copy * columns + column[rows], targets[rows]).astype(np.int32)
