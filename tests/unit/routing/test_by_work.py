"""Bala-Join by work: pairs count as rows do, a batch's hot keys are spread at once, and U(x) shrinks."""

from dataclasses import replace

import numpy as np
import pytest

from balajoin.core import codec
from balajoin.core.hashing import homes
from balajoin.core.matrix import matrix
from balajoin.embedded.workload import zipf_keys
from balajoin.routing import policies
from balajoin.routing.policies import make
from balajoin.routing.rule import SkewRule
from balajoin.routing.sequence import node_sequence

RULE = SkewRule(measure="work", window_us=10**9)
PAPER = replace(RULE, measure="rows")
NOTHING = np.empty(0, np.int64)


def work_of(assignment, probe, build, nodes):
    """Of each node, without copies of build rows: rows, and pairs of any probe row with any build row of its key."""
    sent = probe if assignment.rows is None else probe[assignment.rows]
    pairs = np.bincount(build, minlength=probe.max() + 1)[sent].astype(float)
    if assignment.fragments is not None:
        pairs[assignment.fragments] /= matrix(nodes)[0]
    rows = np.bincount(np.append(assignment.targets, homes(build, nodes)), minlength=nodes)
    return rows + np.bincount(assignment.targets, weights=pairs, minlength=nodes)


@pytest.mark.parametrize("nodes", [4, 8, 16])
@pytest.mark.parametrize("exponent", [1.25, 1.5])
def test_pairs_are_spread_evenly_where_rows_alone_would_not_be(exponent, nodes):
    probe, build = (zipf_keys(50_000, 10_000, exponent, seed) for seed in (1, 2))
    uneven = {}
    for rule in (RULE, PAPER):
        policy = make("bala-join", nodes, 0, rule)
        policy.note_build(build, np.arange(len(build)))
        work = work_of(policy.assign(probe), probe, build, nodes)
        uneven[rule.measure] = work.max() / work.mean()
    assert uneven["work"] <= 1.1
    assert uneven["work"] < uneven["rows"]


def test_a_key_is_spread_in_the_batch_that_makes_it_hot():
    policy = make("bala-join", 4, 0, RULE)
    for _ in range(50):
        policy.assign(zipf_keys(2_000, 1_000, 0, seed=0))
    hot = np.full(2_000, 10**9)
    assert np.bincount(policy.assign(hot).targets, minlength=4).tolist() == [500] * 4


def test_a_key_with_few_rows_and_many_pairs_is_skewed():
    """The key has 0.5 % of the probe rows, below θ, but most of the pairs."""
    probe = np.concatenate([np.full(100, -5), np.arange(19_900)])
    policy = make("bala-join", 4, 0, RULE)
    policy.note_build(np.full(5_000, -5), np.arange(5_000))
    assignment = policy.assign(probe)
    assert assignment.keys.tolist() == [-5]
    assert len(set(assignment.targets[:100].tolist())) > 1
    assert [key.hash for key in policy.hot_keys()] == [-5]
    without_pairs = make("bala-join", 4, 0, replace(RULE, pair_cost=0))
    without_pairs.note_build(np.full(5_000, -5), np.arange(5_000))
    assert without_pairs.assign(probe).keys.tolist() == []


def test_nodes_that_a_key_no_longer_needs_are_given_up():
    policy = make("bala-join", 8, 0, RULE)
    policy.age(0)
    tail = zipf_keys(10_000, 5_000, 0, seed=3)
    hot = 10**9
    policy.assign(np.append(np.full(20_000, hot), tail))
    assert len(policy.hot_keys()[0].nodes) > 5
    for half_life in range(1, 4):
        policy = make("bala-join", 8, 0, RULE, policy.state())
        policy.age(half_life * RULE.half_life_ms)
        policy.assign(np.append(np.full(400, hot), tail))
    (key,) = policy.hot_keys()
    assert key.hash == hot
    assert len(key.nodes) <= 3


@pytest.mark.parametrize(("before", "after"), [(RULE, PAPER), (PAPER, RULE)], ids=["to rows", "to work"])
def test_the_measure_may_change_at_any_start(before, after):
    """Counts stay, so that what is hot is known at once; U(x) begins at home."""
    hashes = np.append(np.full(3_000, 10**9), zipf_keys(3_000, 2_000, 0, seed=1))
    policy = make("bala-join", 4, 0, before)
    policy.note_build(hashes, np.arange(len(hashes)))
    policy.assign(hashes)
    changed = make("bala-join", 4, 0, after, policy.state())
    (hot,) = changed.hot_keys()
    assert (hot.hash, hot.rows) == (10**9, 3_000)
    assert hot.nodes == node_sequence(10**9, 4)[:1]
    changed.note_build(hashes, 10_000 + np.arange(len(hashes)))
    assert len(changed.assign(hashes).keys) == 1
    again = make("bala-join", 4, 0, before, changed.state())
    assert again.hot_keys()[0].hash == 10**9


def test_another_number_of_nodes_keeps_the_counts():
    policy = make("bala-join", 4, 0, RULE)
    policy.assign(np.full(3_000, 10**9))
    rescaled = make("bala-join", 6, 0, RULE, policies.rescaled(policy.state(), 6))
    assert [(key.hash, key.rows) for key in rescaled.hot_keys()] == [(10**9, 3_000)]
    assert rescaled.loads() == [0] * 6
    assert rescaled.hot_keys()[0].nodes == node_sequence(10**9, 6)[:1]


def test_equal_calls_after_an_equal_state_give_equal_assignments():
    first = make("bala-join", 6, 0, RULE)
    probe = zipf_keys(5_000, 1_000, 1.5, seed=0)
    first.note_build(probe, np.arange(len(probe)))
    first.assign(probe)
    state = first.state()
    twice = []
    for _ in range(2):
        policy = make("bala-join", 6, 0, RULE, state)
        policy.note_build(probe[:500], 10_000 + np.arange(500))
        twice.append((policy.assign(probe).targets.tolist(), policy.state()))
    assert twice[0] == twice[1]


def balance_factor(loads):
    return (max(loads) - min(loads)) / max(loads)


def on_both_sides(nodes, rule=RULE, batches=1, seed=0):
    """A policy after some batches of one key that is hot on both sides, and a tail; and its last assignment."""
    policy = make("bala-join", nodes, 0, rule)
    policy.age(0)
    tail = zipf_keys(3_000, 2_000, 0, seed=seed)
    rows = np.append(np.full(3_000, 10**9), tail)
    for batch in range(batches):
        policy.note_build(rows, batch * 10_000 + np.arange(len(rows)))
        assignment = policy.assign(rows)
    return policy, assignment, rows


def test_a_key_that_is_hot_on_both_sides_goes_to_columns_and_its_home():
    _, assignment, rows = on_both_sides(16, replace(RULE, pair_cost=0.01), batches=3)
    height, columns = matrix(16)
    home = homes(np.array([10**9]), 16)[0]
    hot = assignment.entries >= 0
    alone = assignment.targets[hot & ~assignment.fragments]
    assert set((alone % columns).tolist()) == {home % columns}
    assert home in alone
    sent = assignment.targets[assignment.fragments].reshape(-1, height)
    assert len(sent) > 1_000
    assert (sent % columns == sent[:, :1]).all()
    assert (sent // columns == np.arange(height)).all()
    assert home % columns not in sent[:, 0]
    assert np.bincount(assignment.rows, minlength=len(rows)).sum() == len(rows) + len(sent) * (height - 1)


@pytest.mark.parametrize("rule", [replace(RULE, may_fragment=False), PAPER], ids=["must not", "the paper"])
def test_no_row_is_a_fragment_where_that_is_not_wanted(rule):
    assert on_both_sides(16, rule)[1].fragments is None


def test_keys_that_are_hot_on_the_probe_side_only_go_to_single_nodes():
    policy = make("bala-join", 16, 0, RULE)
    rows = np.append(np.full(3_000, 10**9), np.arange(3_000))
    policy.note_build(np.arange(3_000), np.arange(3_000))
    assert policy.assign(rows).fragments is None


def by_work(policy):
    return codec.decode("policy", 1, policy.state())["content"]["by_work"]


def test_a_state_of_an_older_balajoin_has_no_columns():
    policy, _, rows = on_both_sides(16)
    assert by_work(policy)["in_columns"].tolist() == [10**9]
    written = codec.decode("policy", 1, policy.state())
    del written["content"]["by_work"]["in_columns"]
    older = make("bala-join", 16, 0, RULE, codec.encode("policy", 1, written))
    assert by_work(older)["in_columns"].tolist() == []
    assert by_work(older)["copies"].tolist() == by_work(policy)["copies"].tolist()
    older.note_build(rows, np.arange(len(rows)))
    older.assign(rows)


def test_a_join_that_may_no_longer_split_rows_gives_columns_up():
    policy, _, rows = on_both_sides(16)
    changed = make("bala-join", 16, 0, replace(RULE, may_fragment=False), policy.state())
    changed.note_build(rows, 10_000 + np.arange(len(rows)))
    assert changed.assign(rows).fragments is None
    assert by_work(changed)["in_columns"].tolist() == []


def test_a_key_in_columns_stays_there_from_batch_to_batch_and_sources_agree():
    kinds = set()
    for seed in range(5):
        for batches in (1, 4):
            kinds.add(on_both_sides(16, batches=batches, seed=seed)[1].fragments is None)
    assert kinds == {False}


def test_a_key_that_cools_down_gives_its_columns_up():
    policy, _, rows = on_both_sides(16)
    for half_life in range(1, 4):
        policy.age(half_life * RULE.half_life_ms)
        policy.assign(rows[3_000:])
    assert by_work(policy)["in_columns"].tolist() == []
    assert by_work(policy)["copies"].shape[1] == 0


def test_a_node_with_less_weight_gets_less_work():
    probe, build = (zipf_keys(50_000, 10_000, 1.25, seed) for seed in (1, 2))
    weights = np.array([2.0, 1.0, 2.0, 3.0])
    policy = make("bala-join", 4, 0, replace(RULE, weights=tuple(weights.tolist())))
    policy.note_build(build, np.arange(len(build)))
    work = work_of(policy.assign(probe), probe, build, 4) / weights
    assert work.max() <= 1.15 * work.mean()
    assert balance_factor(policy.loads()) <= RULE.balance


def test_weights_that_do_not_fit_the_nodes_are_refused():
    with pytest.raises(ValueError, match="3 weights do not fit 4 nodes"):
        make("bala-join", 4, 0, replace(RULE, weights=(1.0, 2.0, 3.0)))
    for weight in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="weights must be above 0"):
            replace(RULE, weights=(1.0, weight))


def test_memory_is_bounded_by_the_sketch():
    policy = make("bala-join", 4, 0, replace(RULE, counters=8))
    for batch in range(50):
        policy.assign(np.repeat(np.arange(3), 500) + 3 * batch)
    assert len(policy.state()) < 3_000


def test_a_batch_without_rows_of_a_side():
    policy = make("bala-join", 4, 0, RULE)
    policy.note_build(NOTHING, NOTHING)
    assert len(policy.assign(NOTHING).targets) == 0
    assert policy.loads() == [0] * 4


def test_a_key_that_leaves_the_sketch_and_comes_back_in_a_batch_takes_no_work_away():
    """Its count begins anew, and is lower than before the batch."""
    random = np.random.default_rng(0)
    key = 7_919

    def others(rows):
        return random.integers(1 << 20, 1 << 62, rows)

    policy = make("bala-join", 4, 0, RULE)
    policy.assign(np.append(others(20_000), np.full(100, key)))
    build = np.append(others(2_000), np.full(1_000, key))
    policy.note_build(build, np.arange(len(build)))
    policy.assign(np.append(others(200_000), key))
    assert min(policy.loads()) > 40_000
    make("bala-join", 4, 0, RULE, policy.state())


def test_loads_stay_numbers_that_a_state_can_hold():
    rule = replace(RULE, pair_cost=1e9, half_life_ms=1 << 40)
    policy = make("bala-join", 4, 0, rule)
    for _ in range(300):
        policy.note_build(np.full(1_000, 5), np.arange(1_000))
        policy.assign(np.full(300_000, 5))
        policy = make("bala-join", 4, 0, rule, policy.state())
    assert min(policy.loads()) > 0


def test_partitions_that_are_added_do_not_change_how_a_batch_is_repeated():
    hashes = zipf_keys(6_000, 300, 1.3, seed=0)
    before, added = replace(RULE, sources=4, window_us=10_000), replace(RULE, sources=5, window_us=10_000)
    policy = make("bala-join", 4, 0, before)
    policy.note_build(hashes[:2_000], np.arange(2_000))
    policy.assign(hashes[:3_000])
    first, repeated = (make("bala-join", 4, 0, rule, policy.state()) for rule in (before, added))
    for attempt in (first, repeated):
        attempt.note_build(hashes[:2_000], 2_000 + np.arange(2_000))
    assert first.assign(hashes[3_000:]).targets.tolist() == repeated.assign(hashes[3_000:]).targets.tolist()


def test_a_policy_that_goes_on_places_rows_as_one_that_is_restored():
    live = restored = make("bala-join", 3, 0, RULE)
    for batch in range(12):
        hashes = zipf_keys(2_000, 200, 1.3, seed=batch)
        targets = []
        for policy in (live, restored):
            if batch % 3:
                policy.note_build(hashes, batch * 1_000 + np.arange(2_000) // 2)
            targets.append(policy.assign(hashes).targets.tolist())
            if live is restored:
                break
        assert targets[0] == targets[-1]
        restored = make("bala-join", 3, 0, RULE, live.state())
