"""Names each key's home node. All sources, and all attempts at a batch, must compute the same one."""

import numpy as np
from numpy.typing import NDArray

from balajoin.core.kernels import kernel


@kernel
def mix(hash_: np.uint64, epoch: int) -> np.uint64:
    """The paper's `hash(x + epoch)`: splitmix64's finaliser over the key's hash plus a step for each epoch."""
    z = hash_ + np.uint64(epoch) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@kernel
def _homes_kernel(hashes: NDArray[np.int64], nodes: int, out: NDArray[np.int32]) -> None:
    for i in range(len(hashes)):
        out[i] = np.int32(mix(np.uint64(hashes[i]), 0) % np.uint64(nodes))


def homes(hashes: NDArray[np.int64], nodes: int) -> NDArray[np.int32]:
    """The paper's q(x) for each row: the node that always has the key's build rows."""
    out = np.empty(len(hashes), np.int32)
    _homes_kernel(hashes, nodes, out)
    return out


def home(hash_: int, nodes: int) -> int:
    return int(homes(np.array([hash_], np.int64), nodes)[0])


def shown(hash_: int) -> str:
    """The hash as metrics and `balajoin control tail` print it."""
    return f"{hash_ & (1 << 64) - 1:016x}"
