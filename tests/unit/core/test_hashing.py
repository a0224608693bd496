from collections import Counter
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balajoin.core.hashing import homes
from balajoin.spark.labels import labels_on, node_labels, source_label, source_of, spark_murmur3_long

# The output of Spark 4.2.0 for `select x, hash(cast(x as bigint))`.
SPARK_HASHES = {
    0: -1670924195,
    1: -1712319331,
    2: -797927272,
    7: 1293116811,
    42: 1316951768,
    -1: -939490007,
    -2: -981642528,
    1000003: 1229595680,
    2147483647: -1076662929,
    2147483648: 238268309,
    -2147483648: -1889108749,
    4294967296: -1307033787,
    4294967297: -2089628935,
    123456789012345: 1130168193,
    9223372036854775807: -1604625029,
    -9223372036854775808: -853646085,
}

NODES = range(1, 65)
longs = st.integers(-(1 << 63), (1 << 63) - 1)


@pytest.mark.parametrize(("value", "hash_"), SPARK_HASHES.items())
def test_murmur3_is_sparks(value, hash_):
    assert spark_murmur3_long(value) == hash_


@pytest.mark.parametrize("nodes", NODES)
def test_each_node_has_a_partition_of_its_own(nodes):
    labels = node_labels(nodes)
    assert [spark_murmur3_long(label) % nodes for label in labels] == list(range(nodes))


def test_labels_ascend_on_their_partition():
    labels = list(islice(labels_on(3, 7), 20))
    assert labels == sorted(set(labels))
    assert labels == [label for label in range(labels[-1] + 1) if spark_murmur3_long(label) % 7 == 3]


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 7, 16, 24, 64])
def test_source_labels_are_unique_and_spread(nodes):
    labels = [source_label(source, nodes) for source in range(3 * nodes + 1)]
    assert [source_of(label, nodes) for label in labels] == list(range(3 * nodes + 1))
    assert len(set(labels)) == len(labels)
    sources_on = Counter(spark_murmur3_long(label) % nodes for label in labels)
    assert sorted(sources_on.values()) == [3] * (nodes - 1) + [4]


# The same multiplications as in the paper's `hash(x + epoch)` with epoch 0, with Python's integers.
def _home(hash_: int, nodes: int) -> int:
    mask = (1 << 64) - 1
    z = hash_ & mask
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
    return (z ^ (z >> 31)) % nodes


@given(st.lists(longs, max_size=20), st.integers(1, 64))
def test_homes_are_the_mixed_hash(hashes, nodes):
    """The values must never change: rows in checkpoints are stored at these homes."""
    found = homes(np.array(hashes, np.int64), nodes)
    assert found.dtype == np.int32
    assert found.tolist() == [_home(hash_, nodes) for hash_ in hashes]


@pytest.mark.parametrize("nodes", NODES)
@pytest.mark.parametrize(
    "hashes",
    [
        np.arange(65_536, dtype=np.int64),
        -np.arange(65_536, dtype=np.int64),
        np.arange(65_536, dtype=np.int64) << 40,
        np.random.default_rng(1).integers(-(1 << 63), (1 << 63) - 1, 65_536),
    ],
    ids=["small", "negative", "high bits only", "random"],
)
def test_homes_are_even(hashes, nodes):
    rows = np.bincount(homes(hashes, nodes), minlength=nodes)
    assert len(rows) == nodes
    fair = len(hashes) / nodes
    assert abs(rows - fair).max() <= 6 * fair**0.5  # six standard deviations of a fair draw, for any n
