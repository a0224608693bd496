import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balajoin.core.hashing import homes
from balajoin.routing.sequence import node_sequence
from routing_oracle import gen_seq, update_u

longs = st.integers(-(1 << 63), (1 << 63) - 1)


@given(longs, st.integers(1, 40))
def test_the_sequence_is_the_papers(hash_, nodes):
    seq: list[int] = []
    for _ in range(nodes + 1):
        gen_seq(hash_, seq, nodes)
    assert node_sequence(hash_, nodes) == tuple(seq)


@given(longs, st.integers(1, 40))
def test_it_begins_at_home_and_has_every_node_once(hash_, nodes):
    sequence = node_sequence(hash_, nodes)
    assert sequence[0] == homes(np.array([hash_]), nodes)[0]
    assert sorted(sequence) == list(range(nodes))


@given(longs, st.integers(1, 12), st.integers(0, 14))
def test_u_is_the_beginning_of_the_sequence(hash_, nodes, updates):
    u: list[int] = []
    seq: list[int] = []
    for _ in range(updates):
        update_u(hash_, u, seq, nodes)
    assert tuple(u) == node_sequence(hash_, nodes)[:updates]


def test_pinned():
    """The sequence must never change: a join may continue with a newer balajoin."""
    assert node_sequence(42, 6) == (2, 1, 0, 4, 5, 3)
    assert node_sequence(-1, 3) == (0, 2, 1)


def test_there_must_be_a_node():
    with pytest.raises(ValueError, match="at least one node"):
        node_sequence(1, 0)
