"""Hashes that must agree with something else: with Spark's partitioner, or between all sources.

Spark places a group on state partition `pmod(murmur3(label), n)`. Left to itself it puts two of four nodes on one
partition and none on another, so nodes and sources are named by *labels* picked to land where they should.
"""

from collections.abc import Iterator
from itertools import count, islice

import numpy as np
from numba import njit
from numpy.typing import NDArray

_MASK32 = 0xFFFFFFFF
_SPARK_SEED = 42


def _rotate(x: int, bits: int) -> int:
    return ((x << bits) | (x >> (32 - bits))) & _MASK32


def _mix_word(h: int, word: int) -> int:
    k = _rotate((word * 0xCC9E2D51) & _MASK32, 15) * 0x1B873593 & _MASK32
    return (_rotate(h ^ k, 13) * 5 + 0xE6546B64) & _MASK32


def spark_murmur3_long(value: int) -> int:
    """`hash(cast(value as bigint))` of Spark SQL, as a signed 32-bit integer."""
    h = _mix_word(_SPARK_SEED, value & _MASK32)
    h = _mix_word(h, (value >> 32) & _MASK32) ^ 8
    h = (h ^ (h >> 16)) * 0x85EBCA6B & _MASK32
    h = (h ^ (h >> 13)) * 0xC2B2AE35 & _MASK32
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h


def labels_on(partition: int, partitions: int) -> Iterator[int]:
    """Labels, ascending, whose group Spark puts on `partition` of `partitions`."""
    return (label for label in count() if spark_murmur3_long(label) % partitions == partition)


def node_labels(nodes: int) -> list[int]:
    """The label of each node: node j alone is on state partition j."""
    return [next(labels_on(node, nodes)) for node in range(nodes)]


def source_label(source: int, nodes: int) -> int:
    """The label of source `source`: unique, and sources take turns on the n router partitions."""
    return next(islice(labels_on(source % nodes, nodes), source // nodes, None))


@njit(cache=True)
def mix(hash_: np.uint64, epoch: int) -> np.uint64:
    """The paper's `hash(x + epoch)`: splitmix64's finaliser over the key's hash, moved on by the epoch."""
    z = hash_ + np.uint64(epoch) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(cache=True)
def _homes_kernel(hashes: NDArray[np.int64], nodes: int, out: NDArray[np.int32]) -> None:
    for i in range(len(hashes)):
        out[i] = np.int32(mix(np.uint64(hashes[i]), 0) % np.uint64(nodes))


def homes(hashes: NDArray[np.int64], nodes: int) -> NDArray[np.int32]:
    """q(x) of each row: the node where a key's build rows always are."""
    out = np.empty(len(hashes), np.int32)
    _homes_kernel(hashes, nodes, out)
    return out
