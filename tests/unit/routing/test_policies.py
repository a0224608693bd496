"""Every policy: where it sends skewed rows, and that it continues from its state as if it had never stopped."""

import pickle
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import routing_oracle as oracle
from balajoin.core import codec
from balajoin.core.hashing import homes
from balajoin.core.matrix import fragment_of, matrix
from balajoin.embedded.workload import zipf_keys
from balajoin.errors import StateError
from balajoin.routing.balance import BalancedPartition
from balajoin.routing.policies import Assignment, make
from balajoin.routing.rule import LEAST_SKEWED_ROWS, PolicyName, SkewRule
from balajoin.routing.sequence import node_sequence
from balajoin.routing.sketch import Sketch

NAMES = get_args(PolicyName)
HOT, WARM = 10**15, -77
GIVEN = SkewRule(keys=(HOT, WARM))
ONLINE = SkewRule(measure="work")
PAPER = SkewRule(measure="rows")
BALANCED = ("bppr", "bppr-det", "bala-join")


def half_hot(rows=4_000, seed=0):
    """Half the rows have one key; the other half have a thousand keys."""
    random = np.random.default_rng(seed)
    return np.where(random.random(rows) < 0.5, HOT, random.integers(0, 1_000, rows))


def sent_rows(assignment, hashes):
    return hashes if assignment.rows is None else hashes[assignment.rows]


def assert_sound(assignment: Assignment, hashes, nodes):
    """Asserts what holds for every policy."""
    sent = sent_rows(assignment, hashes)
    skewed = assignment.entries >= 0
    assert assignment.targets.dtype == assignment.entries.dtype == np.int32
    assert assignment.keys.dtype == np.int64
    assert len(assignment.targets) == len(assignment.entries) == len(sent)
    assert (assignment.targets[~skewed] == homes(sent, nodes)[~skewed]).all()
    assert ((assignment.targets >= 0) & (assignment.targets < nodes)).all()
    assert (assignment.keys[assignment.entries[skewed]] == sent[skewed]).all()
    assert sorted(assignment.keys.tolist()) == sorted(set(sent[skewed].tolist()))
    if assignment.rows is not None:
        assert assignment.rows.dtype == np.int32
        assert (np.diff(assignment.rows) >= 0).all()
        assert set(assignment.rows.tolist()) == set(range(len(hashes)))


@pytest.mark.parametrize("rule", [ONLINE, PAPER, GIVEN], ids=["online", "paper", "given"])
@pytest.mark.parametrize("nodes", [1, 2, 3, 6, 12])
@pytest.mark.parametrize("name", NAMES)
def test_assignments_are_sound(name, nodes, rule):
    policy = make(name, nodes, 5, rule)
    hashes = half_hot()
    hashes.flags.writeable = False
    for batch in np.array_split(hashes, 5):
        policy.note_build(batch, np.arange(len(batch)))
        assert_sound(policy.assign(batch), batch, nodes)
    empty = policy.assign(hashes[:0])
    assert_sound(empty, hashes[:0], nodes)
    assert len(empty.targets) == 0


@pytest.mark.parametrize("name", NAMES)
def test_uniform_rows_all_go_home(name):
    hashes = zipf_keys(50_000, 2_000, 0, seed=1)
    assignment = make(name, 6, 0, ONLINE).assign(hashes)
    assert assignment.rows is None
    assert assignment.fragments is None
    assert (assignment.entries == -1).all()
    assert (assignment.targets == homes(hashes, 6)).all()


def skewed_targets(name, nodes, source=5, rule=GIVEN, hashes=None):
    hashes = half_hot() if hashes is None else hashes
    assignment = make(name, nodes, source, rule).assign(hashes)
    return assignment.targets[assignment.entries >= 0]


def test_prpd_keeps_skewed_rows_at_the_source():
    assert set(skewed_targets("prpd", 4).tolist()) == {1}


def test_pnr_goes_round():
    targets = skewed_targets("pnr", 7)
    assert (targets == np.arange(len(targets)) % 7).all()


@pytest.mark.parametrize(
    ("nodes", "shape"), [(1, (1, 1)), (2, (1, 2)), (3, (1, 3)), (6, (2, 3)), (9, (3, 3)), (12, (3, 4)), (24, (4, 6))]
)
def test_the_matrix_is_as_square_as_can_be(nodes, shape):
    assert matrix(nodes) == shape


@pytest.mark.parametrize("nodes", [3, 6, 12])
def test_sfr_sends_to_a_column(nodes):
    hashes = half_hot()
    assignment = make("sfr", nodes, 0, GIVEN).assign(hashes)
    height, columns = matrix(nodes)
    assert (assignment.fragments == (assignment.entries >= 0)).all()
    sent = assignment.targets[assignment.fragments].reshape(-1, height)
    assert (sent // columns == np.arange(height)).all()
    assert (sent % columns == (np.arange(len(sent)) % columns)[:, None]).all()
    assert (hashes[assignment.rows] == HOT).tolist() == assignment.fragments.tolist()
    assert len(assignment.rows) == (hashes == HOT).sum() * height + (hashes != HOT).sum()


def test_each_pair_meets_on_one_node_under_sfr():
    nodes = 12
    height, columns = matrix(nodes)
    assignment = make("sfr", nodes, 0, GIVEN).assign(np.full(100, HOT))
    shares = fragment_of(np.repeat(np.arange(3, dtype=np.int32), 40), np.tile(np.arange(40), 3), height)
    for row in range(100):
        met = [shares == target // columns for target in assignment.targets[assignment.rows == row]]
        assert (np.sum(met, axis=0) == 1).all()


def test_build_rows_are_shared_out_evenly_and_by_position_only():
    partitions, offsets = np.repeat(np.arange(4, dtype=np.int32), 3_000), np.tile(np.arange(3_000), 4)
    shares = fragment_of(partitions, offsets, 4)
    assert (np.abs(np.bincount(shares, minlength=4) - 3_000) < 200).all()
    assert (fragment_of(partitions[::-1].copy(), offsets[::-1].copy(), 4) == shares[::-1]).all()
    with pytest.raises(TypeError, match="do not fit"):
        fragment_of(partitions, offsets[1:], 4)


def test_flow_join_treats_keys_by_the_sides_on_which_they_are_skewed():
    policy = make("flow-join", 6, 4, ONLINE)
    rows = np.tile([HOT, WARM], 500)
    policy.note_build(np.full(500, HOT), np.arange(500))
    assignment = policy.assign(rows)
    sent = rows[assignment.rows]
    skewed = assignment.entries >= 0
    assert (assignment.fragments == (skewed & (sent == HOT))).all()
    assert set(assignment.targets[skewed & (sent == WARM)].tolist()) == {4}
    assert set(assignment.targets[assignment.fragments].tolist()) == set(range(6))
    assert policy.broadcasts


def test_flow_join_without_build_skew_is_prpd():
    hashes = half_hot()
    flow, prpd = (make(name, 6, 4, ONLINE).assign(hashes) for name in ("flow-join", "prpd"))
    assert flow.fragments is None
    assert flow.targets.tolist() == prpd.targets.tolist()


def test_bppr_is_the_papers_for_the_given_keys():
    hashes = half_hot()
    hashes[::5] = WARM
    expected = oracle.BalancedPartition(6, GIVEN.balance)
    nodes = [expected.row(key) if key in GIVEN.keys else oracle.paper_hash(key, 0) % 6 for key in hashes.tolist()]
    policy = make("bppr", 6, 0, GIVEN)
    assert policy.assign(hashes).targets.tolist() == nodes
    assert {key.hash: list(key.nodes) for key in policy.hot_keys()} == expected.u


def test_bppr_det_counts_a_call_before_it_routes_it():
    rule = SkewRule(first_pass_rows=1_000)
    hashes = half_hot(3_000)
    split = make("bppr-det", 6, 0, rule)
    assert (split.assign(hashes[:999]).entries == -1).all()
    assert split.hot_keys() == []
    completing = split.assign(hashes[999:2_000])
    assert ((completing.entries >= 0) == (hashes[999:2_000] == HOT)).all()
    at_once = make("bppr-det", 6, 0, rule).assign(hashes)
    assert ((at_once.entries >= 0) == (hashes == HOT)).all()


def test_bppr_det_never_learns_again():
    policy = make("bppr-det", 6, 0, SkewRule(first_pass_rows=1_000))
    policy.assign(half_hot(1_000))
    policy = make("bppr-det", 6, 0, SkewRule(first_pass_rows=1_000), policy.state())
    assert policy.assign(np.full(2_000, WARM)).keys.tolist() == []
    assert policy.assign(np.full(10, HOT)).keys.tolist() == [HOT]


@given(st.lists(st.integers(0, 6), min_size=100, max_size=500), st.integers(1, 7), st.sampled_from([0.05, 0.1, 0.3]))
@settings(max_examples=50)
def test_bala_join_is_the_papers(keys, nodes, theta):
    rule = replace(PAPER, threshold=theta, balance=0.2, counters=8)
    hashes = np.array(keys)
    assignment = make("bala-join", nodes, 0, rule).assign(hashes)
    routed = oracle.bala_join(keys, nodes, theta, 0.2, 8, LEAST_SKEWED_ROWS)
    assert list(zip(assignment.targets.tolist(), (assignment.entries >= 0).tolist(), strict=True)) == routed


@pytest.mark.parametrize("nodes", [2, 24])
@pytest.mark.parametrize("exponent", [0, 0.8, 1.25, 2])
def test_the_fused_kernel_is_detector_and_partition_in_turn(exponent, nodes):
    hashes = zipf_keys(100_000, 20_000, exponent, seed=4)
    assignment = make("bala-join", nodes, 0, PAPER).assign(hashes)
    partition = BalancedPartition(nodes, ONLINE.balance, 2 * ONLINE.counters)
    targets, entries, keys = partition.assign(hashes, Sketch(ONLINE.counters).judge(hashes, ONLINE.threshold))
    assert (assignment.targets == targets).all()
    assert (assignment.entries == entries).all()
    assert (assignment.keys == keys).all()


def passing_hot_keys(keys, rows_each):
    return np.repeat(np.arange(keys), rows_each)


def test_sets_of_passed_keys_are_forgotten_when_there_is_no_room():
    """Each key has all rows for a while. With 4 counters, at most 8 sets are kept."""
    rule = replace(PAPER, threshold=0.01, counters=4)
    hashes = passing_hot_keys(60, 40)
    policy = make("bala-join", 3, 0, rule)
    assignment = policy.assign(hashes)
    assert_sound(assignment, hashes, 3)
    assert len(assignment.keys) > 8
    state = codec.decode("policy", 1, policy.state())
    assert state["content"]["partition"]["sets"].shape[1] <= 8


def test_a_state_with_more_sets_than_there_is_room_for_is_taken():
    policy = make("bala-join", 3, 0, replace(PAPER, threshold=0.01, counters=64))
    policy.assign(np.tile(np.arange(40), 100))
    restored = make("bala-join", 3, 0, replace(PAPER, threshold=0.01, counters=4), policy.state())
    hashes = passing_hot_keys(60, 40)
    assert_sound(restored.assign(hashes), hashes, 3)


@pytest.mark.parametrize("cut", range(0, 2_400, 61))
def test_forgetting_is_the_same_wherever_a_batch_ends(cut):
    rule = replace(PAPER, threshold=0.01, counters=4)
    hashes = passing_hot_keys(60, 40)
    whole, before = make("bala-join", 3, 0, rule), make("bala-join", 3, 0, rule)
    first = before.assign(hashes[:cut])
    after = make("bala-join", 3, 0, rule, before.state())
    second = after.assign(hashes[cut:])
    assert [*first.targets, *second.targets] == whole.assign(hashes).targets.tolist()
    assert after.state() == whole.state()


def test_sets_of_passed_keys_are_forgotten_with_age():
    policy = make("bala-join", 6, 0, PAPER)
    policy.assign(np.full(1_000, HOT))
    policy.age(0)
    policy.assign(np.tile([WARM, 7], 100_000))
    assert HOT not in [key.hash for key in policy.hot_keys()]
    before = codec.decode("policy", 1, policy.state())["content"]["partition"]["sets"][0]
    policy.age(ONLINE.half_life_ms)
    after = codec.decode("policy", 1, policy.state())["content"]["partition"]["sets"][0]
    assert sorted(before.tolist()) == sorted([HOT, WARM, 7])
    assert sorted(after.tolist()) == sorted([WARM, 7])


@pytest.mark.parametrize("name", ["pnr", "bppr", "bala-join"])
def test_counts_halve_once_for_each_half_life(name):
    rule = SkewRule(half_life_ms=100, keys=(HOT,) if name == "bppr" else ())
    policy = make(name, 3, 0, rule)
    policy.age(1_000)
    policy.assign(np.full(1_024, HOT))
    rows = []
    for now_ms in (1_099, 1_100, 1_150, 1_120, 1_199, 1_399):
        policy.age(now_ms)
        policy = make(name, 3, 0, rule, policy.state())
        rows.append(policy.hot_keys()[0].rows)
    assert rows == [1_024, 512, 512, 512, 512, 128]
    policy.age(10**15)
    assert policy.hot_keys() == []
    assert (policy.assign(np.arange(10)).entries == -1).all()


@pytest.mark.parametrize("name", BALANCED)
def test_loads_age_so_that_a_node_long_idle_is_not_flooded(name):
    """Halved loads stay balanced, except for one row of rounding."""
    rule = replace(PAPER, half_life_ms=10, keys=(HOT,) if name == "bppr" else (), first_pass_rows=1_000)
    policy = make(name, 6, 0, rule)
    counts = np.zeros(6)
    for batch in range(20):
        policy.age(batch * 10)
        assignment = policy.assign(np.full(2_000, HOT))
        counts += np.bincount(assignment.targets[assignment.entries >= 0], minlength=6)
    assert (counts.max() - counts.min()) / counts.max() <= rule.balance + 0.01


def test_hot_keys_tell_rows_share_and_nodes():
    hashes = half_hot(10_000)
    policy = make("bala-join", 6, 0, ONLINE)
    policy.assign(hashes)
    (hot,) = policy.hot_keys()
    assert hot.hash == HOT
    assert hot.rows == (hashes == HOT).sum()
    assert hot.share == hot.rows / 10_000
    assert hot.nodes == node_sequence(HOT, 6)
    assert make("prpd", 6, int(homes(np.array([HOT]), 6)[0]), GIVEN).hot_keys() == []


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("hash", "bppr-det")])
def test_at_most_32_hot_keys_the_most_frequent_first(name):
    hashes = np.repeat(np.arange(50), np.arange(50, 0, -1) * 40)
    rule = SkewRule(threshold=0.001, keys=tuple(range(50)) if name == "bppr" else ())
    policy = make(name, 4, 0, rule)
    policy.assign(np.random.default_rng(0).permutation(hashes))
    hot = policy.hot_keys()
    assert [key.hash for key in hot] == list(range(32))
    assert all(key.nodes[0] == homes(np.array([key.hash]), 4)[0] for key in hot)


RULES = {
    "small sketch": SkewRule(threshold=0.05, counters=6, half_life_ms=10, first_pass_rows=100),
    "given": SkewRule(threshold=0.05, keys=(0, 1, 2), half_life_ms=10, first_pass_rows=100),
}


@st.composite
def histories(draw):
    """A stream with changing hot keys, cut into batches. Between batches time may pass and build rows may come."""
    seed = draw(st.integers(0, 1 << 20))
    random = np.random.default_rng(seed)
    phases = [
        zipf_keys(draw(st.integers(0, 300)), 40, 1.5, seed + at) + 3 * at for at in range(draw(st.integers(1, 4)))
    ]
    probe = np.concatenate(phases)
    cuts = sorted(draw(st.lists(st.integers(0, len(probe)), max_size=4)))
    return probe, cuts, random


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("name", NAMES)
@given(history=histories())
@settings(max_examples=25)
def test_stopping_and_going_on_changes_nothing(name, rule, history):
    """bppr-det routes each call of its first pass as a unit, and bala-join by work each call."""
    rule = replace(rule, measure="rows")
    probe, cuts, random = history
    if name == "bppr-det":
        cuts = [cut for cut in cuts if cut >= rule.first_pass_rows]
    build = zipf_keys(200, 5, 2, int(random.integers(100)))
    whole, part = (make(name, 6, 2, rule) for _ in range(2))
    for policy in (whole, part):
        policy.note_build(build, np.arange(len(build)))
    expected = whole.assign(probe)
    got = []
    for rows in np.split(probe, cuts):
        part = make(name, 6, 2, rule, part.state())
        got.append((rows, part.assign(rows)))
    assert np.concatenate([a.targets for _, a in got]).tolist() == expected.targets.tolist()
    assert [k for _, a in got for k in np.append(a.keys, 0)[a.entries] * (a.entries >= 0)] == (
        np.append(expected.keys, 0)[expected.entries] * (expected.entries >= 0)
    ).tolist()
    assert [f for _, a in got for f in fragments(a)] == fragments(expected)
    assert sum(len(sent_rows(a, rows)) for rows, a in got) == len(sent_rows(expected, probe))
    assert part.state() == whole.state()
    assert part.hot_keys() == whole.hot_keys()


def fragments(assignment):
    if assignment.fragments is None:
        return [False] * len(assignment.targets)
    return assignment.fragments.tolist()


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("name", NAMES)
@given(history=histories())
@settings(max_examples=10)
def test_restored_policies_age_alike(name, rule, history):
    probe, cuts, random = history
    kept, restored = (make(name, 4, 1, rule) for _ in range(2))
    now_ms = 0
    for rows in np.split(probe, cuts):
        now_ms += int(random.integers(0, 25))
        for policy in (kept, restored):
            policy.age(now_ms)
            policy.note_build(rows[::2], now_ms + np.arange(len(rows[::2])))
        assert kept.assign(rows).targets.tolist() == restored.assign(rows).targets.tolist()
        restored = make(name, 4, 1, rule, restored.state())
        assert restored.state() == kept.state()


@pytest.mark.parametrize("name", NAMES)
def test_state_of_another_policy_is_a_fresh_start(name):
    for other in NAMES:
        policy = make(other, 3, 0, GIVEN)
        policy.assign(half_hot())
        restored = make(name, 3, 0, GIVEN, policy.state())
        expected = policy if other == name else make(name, 3, 0, GIVEN)
        assert restored.state() == expected.state()


@pytest.mark.parametrize("name", NAMES)
def test_state_survives_another_rule(name):
    policy = make(name, 3, 0, SkewRule(counters=16, keys=(HOT, 5), first_pass_rows=2_000))
    policy.assign(half_hot())
    for rule in (SkewRule(counters=4), SkewRule(counters=99, keys=(HOT,)), SkewRule(first_pass_rows=1, keys=(9, 8, 7))):
        changed = make(name, 3, 0, rule, policy.state())
        hashes = half_hot(seed=1)
        assert_sound(changed.assign(hashes), hashes, 3)


@pytest.mark.parametrize("name", NAMES)
def test_bad_state_is_refused(name):
    policy = make(name, 3, 0, GIVEN)
    policy.assign(half_hot())
    state = policy.state()
    with pytest.raises(StateError, match="damaged"):
        make(name, 3, 0, GIVEN, state[:-1] + bytes([state[-1] ^ 1]))
    with pytest.raises(StateError, match="has version 2, this balajoin reads version 1"):
        make(name, 3, 0, GIVEN, codec.encode("policy", 2, {}))
    with pytest.raises(StateError, match=r"join\.nodes is 4, but the checkpoint was made with 3"):
        make(name, 4, 0, GIVEN, state)


def test_state_is_small():
    policy = make("bala-join", 24, 0, PAPER)
    policy.assign(zipf_keys(100_000, 50_000, 1.25, seed=0))
    assert len(policy.state()) < 26_000
    policy = make("bala-join", 24, 0, ONLINE)
    keys = zipf_keys(100_000, 50_000, 1.25, seed=0)
    policy.note_build(keys, np.arange(len(keys)))
    policy.assign(keys)
    assert len(policy.state()) < 55_000


def test_unknown_names_and_numbers_are_refused():
    with pytest.raises(ValueError, match="no policy round-robin; there are hash, prpd"):
        make("round-robin", 3, 0, ONLINE)
    with pytest.raises(ValueError, match="at least one node"):
        make("hash", 0, 0, ONLINE)
    for wrong in ({"threshold": 0}, {"threshold": 1.1}, {"balance": -0.1}, {"counters": 0}, {"half_life_ms": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            SkewRule(**wrong)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_a_row_of_hashes_is_refused(name):
    with pytest.raises(TypeError, match="int64"):
        make(name, 3, 0, GIVEN).assign(np.zeros(3))


def test_a_rule_is_a_value():
    assert pickle.loads(pickle.dumps(GIVEN)) == GIVEN
    assert len({GIVEN, SkewRule(keys=(HOT, WARM)), ONLINE}) == 2


@pytest.mark.parametrize(
    ("name", "broadcasts"), [("hash", False), ("prpd", True), ("pnr", True), ("sfr", True), ("bala-join", False)]
)
def test_who_broadcasts(name, broadcasts):
    assert make(name, 3, 0, ONLINE).broadcasts is broadcasts
