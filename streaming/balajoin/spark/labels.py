"""Group keys that Spark puts where we want them.

Spark places a group on state partition `pmod(murmur3(label), n)`. With plain numbers it would put two of four nodes on
one partition and none on another. So nodes and sources have *labels*, chosen for the partition that they hash to.
"""

from collections.abc import Iterator
from functools import cache
from itertools import count, islice, takewhile

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


def partition_of(label: int, partitions: int) -> int:
    """Where Spark puts the group of this label."""
    return spark_murmur3_long(label) % partitions


def labels_on(partition: int, partitions: int) -> Iterator[int]:
    """Labels, ascending, whose group Spark puts on `partition` of `partitions`."""
    return (label for label in count() if partition_of(label, partitions) == partition)


def node_labels(nodes: int) -> list[int]:
    """The label of each node: node j alone is on state partition j."""
    found: dict[int, int] = {}
    candidates = count()
    while len(found) < nodes:
        label = next(candidates)
        found.setdefault(partition_of(label, nodes), label)
    return [found[node] for node in range(nodes)]


@cache
def source_label(source: int, nodes: int) -> int:
    """The label of source `source`: unique, and sources take turns on the n router partitions."""
    return next(islice(labels_on(source % nodes, nodes), source // nodes, None))


def source_of(label: int, nodes: int) -> int:
    """The inverse of `source_label`."""
    partition = partition_of(label, nodes)
    turns = sum(1 for _ in takewhile(label.__gt__, labels_on(partition, nodes)))
    return partition + turns * nodes
