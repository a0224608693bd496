"""Placing a batch's skewed rows: all rows have a place, the bound of the busiest node holds, and copies are few."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import routing_oracle as oracle
from balajoin.core.hashing import homes
from balajoin.core.matrix import matrix
from balajoin.routing.grid import Hot, place_hot, single_nodes, used_nodes, with_columns
from balajoin.routing.placement import ROW, Numbered, hand_out, number, place


def sequence(key, nodes):
    seq = []
    for _ in range(nodes):
        oracle.gen_seq(key, seq, nodes)
    return seq


def of_mean_one(weights):
    return np.array(weights) / np.mean(weights)


@st.composite
def batches(draw):
    nodes = draw(st.sampled_from([1, 2, 3, 4, 6, 8, 9, 12, 16]))
    keys = draw(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=12, unique=True))
    work = st.integers(0, 50 * ROW)

    def of_keys(numbers):
        return np.array(draw(st.lists(numbers, min_size=len(keys), max_size=len(keys))))

    hashes = np.array(keys, np.int64)
    copied = np.array([draw(st.lists(st.booleans(), min_size=nodes, max_size=nodes)) for _ in keys])
    copied[np.arange(len(keys)), homes(hashes, nodes)] = False
    rows = of_keys(st.integers(1, 300))
    hot = Hot(hashes, rows, of_keys(work) + ROW, of_keys(work) + 1, copied, of_keys(st.booleans()))
    others = np.array(draw(st.lists(st.integers(0, 5_000 * ROW), min_size=nodes, max_size=nodes)), np.int64)
    weights = draw(st.just([1.0] * nodes) | st.lists(st.floats(0.01, 100), min_size=nodes, max_size=nodes))
    return others, hot, of_mean_one(weights), draw(st.sampled_from([0.0, 0.05, 0.3]))


def given_loads(others, keys):
    return others + (keys.copied * keys.copy_work).sum(axis=0)


def nodes_of(keys, entry, place_, nodes):
    return range(place_, nodes, keys.steps[entry, place_])


def expected_loads(others, keys, quotas):
    """Of all that must be there, one row of one key after the other. Copies of places that were given up may come."""
    loads = given_loads(others, keys)
    at_home = homes(keys.hashes, len(others))
    for entry, place_ in np.argwhere(quotas).tolist():
        for node in nodes_of(keys, entry, place_, len(others)):
            loads[node] += quotas[entry, place_] * keys.row_work[entry, place_]
            if not keys.copied[entry, node] and node != at_home[entry]:
                loads[node] += keys.copy_work[entry, node]
    return loads


@given(batches(), st.booleans())
@settings(max_examples=300)
def test_all_rows_have_a_place_and_loads_are_their_work(batch, may_fragment):
    others, hot, weights, slack = batch
    keys, placement = place_hot(others, hot, weights, slack, may_fragment)
    assert (placement.quotas >= 0).all()
    assert (placement.quotas.sum(axis=1) == hot.rows).all()
    assert (placement.loads >= expected_loads(others, keys, placement.quotas)).all()
    if not may_fragment or matrix(len(others))[0] == 1:
        assert (keys.steps == len(others)).all()


@given(batches(), st.booleans())
@settings(max_examples=300)
def test_the_bound_holds(batch, may_fragment):
    others, hot, weights, slack = batch
    keys, placement = place_hot(others, hot, weights, slack, may_fragment)
    before = given_loads(others, keys)
    mean = (given_loads(others, single_nodes(hot)).sum() + (hot.rows * hot.row_work).sum()) / len(others)
    level = (1 + slack) * (33 / 32 * mean + hot.copy_work.sum() + 3)
    bound = level + hot.row_work.max() / weights.min() + 2
    assert (placement.loads / weights).max() <= max((before / weights).max(), bound)


@given(batches())
@settings(max_examples=100)
def test_the_places_of_a_key_are_all_nodes_once_and_begin_at_its_home(batch):
    others, hot, _, _ = batch
    nodes = len(others)
    height, columns = matrix(nodes)
    single, in_columns = single_nodes(hot), with_columns(hot)
    for entry, key in enumerate(hot.hashes.tolist()):
        home, *_ = sequence(key, nodes)
        assert single.places[entry].tolist() == sequence(key, nodes)
        places = [at for at in in_columns.places[entry].tolist() if at >= 0]
        assert places[0] == home
        reached = [node for at in places for node in nodes_of(in_columns, entry, at, nodes)]
        assert sorted(reached) == list(range(nodes))
        alone = {at for at in places if len(nodes_of(in_columns, entry, at, nodes)) == 1}
        if height > 1:
            assert alone == {node for node in range(nodes) if node % columns == home % columns}
            assert set(places) - alone == set(range(columns)) - {home % columns}


def hot_key(rows, *, nodes=4, pairs=0, copy_work=0, copied=(), in_columns=False):
    has = np.zeros((1, nodes), np.bool_)
    has[0, list(copied)] = True
    of_key = (np.array([value]) for value in (7, rows, ROW + pairs * ROW, copy_work))
    return Hot(*of_key, has, np.array([in_columns]))


def placed(others, hot, slack=0.05, weights=None):
    """On single nodes."""
    return place(others, single_nodes(hot), np.ones(len(others)) if weights is None else weights, slack)


def test_a_key_that_fits_at_home_stays_there():
    home = sequence(7, 4)[0]
    others = np.full(4, 100 * ROW)
    others[home] = 0
    placement = placed(others, hot_key(100))
    assert placement.quotas[0, home] == 100
    assert placement.loads.tolist() == [100 * ROW] * 4


def test_one_key_without_other_work_goes_evenly_to_all_nodes():
    assert placed(np.zeros(4, np.int64), hot_key(1_000)).quotas.tolist() == [[250] * 4]


def test_nodes_get_rows_by_their_weight():
    weights = of_mean_one([1, 2, 4, 1])
    assert placed(np.zeros(4, np.int64), hot_key(800), 0, weights).quotas.tolist() == [[100, 200, 400, 100]]


def test_a_weak_node_that_others_fill_gets_no_skewed_rows():
    others = np.full(4, 300 * ROW)
    placement = placed(others, hot_key(1_000), 0.05, of_mean_one([1, 10, 10, 10]))
    assert placement.quotas[0, 0] == 0
    assert placement.loads[0] == others[0]


def test_copies_that_cost_more_than_they_save_are_not_made():
    """Each copy is as much work as all probe rows, so the key stays at home."""
    placement = placed(np.zeros(4, np.int64), hot_key(1_000, copy_work=1_000 * ROW))
    assert np.count_nonzero(placement.quotas) == 1


def test_a_node_that_has_a_copy_is_used_first():
    *_, last = sequence(7, 4)
    placement = placed(np.zeros(4, np.int64), hot_key(1_000, copy_work=300 * ROW, copied=[last]))
    assert placement.quotas[0, last] > 0


def uses_columns(hot):
    nodes = hot.copied.shape[1]
    keys, placement = place_hot(np.zeros(nodes, np.int64), hot, np.ones(nodes), 0.05, True)
    return bool((keys.steps < nodes).any()), keys, placement


def test_a_key_that_is_hot_on_both_sides_uses_its_home_and_columns():
    columns, keys, placement = uses_columns(hot_key(3_000, nodes=16, pairs=20, copy_work=2_000 * ROW))
    assert columns
    home = sequence(7, 16)[0]
    used = used_nodes(keys, placement.quotas)[0]
    assert used[home]
    assert used.sum() == 13
    assert placement.loads.max() <= 1.1 * placement.loads[used].min()


@pytest.mark.parametrize(
    "hot",
    [
        hot_key(3_000, nodes=16, pairs=20, copy_work=100 * ROW),
        hot_key(3_000, nodes=4, pairs=20, copy_work=2_000 * ROW),
        hot_key(3_000, nodes=13, pairs=20, copy_work=2_000 * ROW),
    ],
    ids=["few build rows", "few nodes", "a matrix with one row"],
)
def test_single_nodes_are_used_where_columns_would_copy_as_much(hot):
    assert not uses_columns(hot)[0]


def test_a_key_changes_its_kind_of_places_only_if_that_spares_much():
    """On 16 nodes columns copy 3 parts of the build rows and 2.8 of the probe rows, and single nodes 15 parts."""
    kinds = []
    for share in range(10, 110, 5):
        keys = [
            hot_key(10_000, nodes=16, pairs=99, copy_work=share * 100 * ROW, in_columns=was) for was in (False, True)
        ]
        kinds.append(tuple(uses_columns(key)[0] for key in keys))
    assert kinds[0] == (False, False)
    assert kinds[-1] == (True, True)
    assert (False, True) in kinds
    assert (True, False) not in kinds
    assert kinds == sorted(kinds)


def test_rows_are_handed_out_in_runs_in_the_order_of_the_sequence():
    hashes = np.array([7, 1, 7, 7, 2, 7, 7])
    batch: Numbered = number(hashes, np.array([9, 7]), 3)
    assert batch.keys.tolist() == [7]
    assert batch.rows.tolist() == [5]
    assert batch.entries.tolist() == [0, -1, 0, 0, -1, 0, 0]
    assert batch.others.sum() == 2
    first, second, third = sequence(7, 3)
    quotas = np.zeros((1, 3), np.int64)
    quotas[0, [first, third]] = 2, 3
    hand_out(batch, single_nodes(hot_key(5, nodes=3)), quotas)
    assert batch.targets[batch.entries == 0].tolist() == [first, first, third, third, third]
    assert (batch.targets[batch.entries < 0] == homes(np.array([1, 2]), 3)).all()
    assert quotas.sum() == 5
    assert second not in batch.targets[batch.entries == 0]
