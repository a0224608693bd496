"""The paper's Algorithm 1: the order in which a key's rows use nodes. Every source computes the same order.

GenSeq and UpdateU are one step: U(x) is the sequence so far. Its first node is the key's home.
"""

import numpy as np
from numpy.typing import NDArray

from balajoin.core.hashing import mix
from balajoin.core.kernels import kernel
from balajoin.routing.arrays import key_hashes

Sequences = NDArray[np.int32]


@kernel
def _contains(sequences: Sequences, entry: int, size: int, node: int) -> bool:
    for i in range(size):  # noqa: SIM110  numba has no any() over a generator
        if sequences[entry, i] == node:
            return True
    return False


@kernel
def extend(sequences: Sequences, entry: int, size: int, hash_: int) -> None:
    """Writes node number `size` of the key's sequence to row `entry`. The sequence must not have all nodes yet."""
    nodes = np.uint64(sequences.shape[1])
    epoch = size
    node = int(np.int64(mix(np.uint64(hash_), epoch) % nodes))
    while _contains(sequences, entry, size, node):
        epoch += 1
        node = int(np.int64(mix(np.uint64(hash_), epoch) % nodes))
    sequences[entry, size] = node


@kernel
def extend_to(sequences: Sequences, entry: int, size: int, hash_: int) -> None:
    for at in range(size):
        extend(sequences, entry, at, hash_)


@kernel
def _sequences_kernel(hashes: NDArray[np.int64], sequences: Sequences) -> None:
    for entry in range(len(hashes)):
        extend_to(sequences, entry, sequences.shape[1], hashes[entry])


def node_sequences(hashes: NDArray[np.int64], nodes: int) -> Sequences:
    """Of each key all nodes, in the order in which it uses them."""
    sequences = np.empty((len(hashes), nodes), np.int32)
    _sequences_kernel(key_hashes(hashes), sequences)
    return sequences


def node_sequence(hash_: int, nodes: int) -> tuple[int, ...]:
    """All nodes, in the order in which this key uses them."""
    if nodes < 1:
        raise ValueError(f"there must be at least one node, not {nodes}")
    sequences = np.empty((1, nodes), np.int32)
    extend_to(sequences, 0, nodes, hash_)
    return tuple(sequences[0].tolist())
