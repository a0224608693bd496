"""The cost model behind the paper's tables: what it counts, what it charges, and what it calls agreement."""

from dataclasses import replace

import numpy as np
import pytest
from paper import published
from paper.agreement import same_ranking, widest_gap
from paper.contenders import skewed_keys
from paper.cost import cost
from paper.parameters import Parameters
from paper.redistribution import Redistribution, in_own_column, redistribute
from paper.ssb import exponent
from paper.workload import Zipf, shards

from balajoin.routing import policies
from balajoin.routing.rule import SkewRule


def small(nodes=3, zipf=1.25, **settings):
    return shards(Zipf(nodes, zipf, rows=3_000, keys=100, **settings))


def given(data, **settings):
    return SkewRule(threshold=0.01, keys=skewed_keys(data, 0.01), **settings)


def pairs(data):
    probe, build = (np.bincount(np.concatenate(side), minlength=data.keys) for side in (data.probe, data.build))
    return int(probe @ build)


@pytest.mark.parametrize("path", ["direct", "by home"])
@pytest.mark.parametrize("nodes", [3, 6])
@pytest.mark.parametrize("policy", ["hash", "prpd", "pnr", "sfr", "bppr"])
def test_every_policy_makes_every_pair_once(policy, nodes, path):
    data = small(nodes)
    moved = redistribute(data, policy, given(data), path)
    assert moved.results.sum() == pytest.approx(pairs(data))
    assert moved.sent.sum() == pytest.approx(moved.received.sum())


@pytest.mark.parametrize("policy", ["bala-join", "bppr-det", "flow-join"])
def test_every_detecting_policy_makes_every_pair_once(policy):
    data = small(6)
    moved = redistribute(data, policy, SkewRule(threshold=0.01))
    assert moved.results.sum() == pytest.approx(pairs(data))
    assert moved.skewed.sum() > 0


def test_hash_sends_each_row_once():
    data = small(3)
    moved = redistribute(data, "hash", given(data))
    assert moved.taken.sum() == data.probe_rows + data.build_rows
    assert moved.sent.sum() == pytest.approx(2 / 3 * moved.taken.sum(), rel=0.1)


def test_pnr_copies_each_skewed_build_row_to_every_node():
    data = small(3)
    rule = given(data)
    skewed = np.isin(data.hashes, rule.keys)
    copied = sum(int(skewed[shard].sum()) for shard in data.build)
    moved = redistribute(data, "pnr", rule)
    assert moved.taken.sum() == data.probe_rows + data.build_rows + 2 * copied


def test_bppr_copies_less_than_pnr():
    data = small(6)
    pnr, bppr = (redistribute(data, policy, given(data)) for policy in ("pnr", "bppr"))
    assert bppr.sent.sum() < pnr.sent.sum()


def test_a_detour_by_the_home_costs_traffic():
    data = small(3)
    direct, by_home = (redistribute(data, "pnr", given(data), path) for path in ("direct", "by home"))
    assert by_home.sent.sum() > direct.sent.sum()
    assert by_home.taken.sum() == pytest.approx(direct.taken.sum())


def test_fragments_by_origin_stay_in_the_column_of_their_node():
    hashes = np.full(8, 7, np.int64)
    dealt = policies.make("sfr", 6, 4, SkewRule(keys=(7,))).assign(hashes)
    assert set(dealt.targets.tolist()) == {0, 1, 2, 3, 4, 5}
    assert set(in_own_column(dealt, 4, 6).targets.tolist()) == {1, 4}


def test_clustered_keys_lie_at_one_node():
    probe = small(3, clustering=1.0).probe
    assert not set(probe[0].tolist()) & set(probe[1].tolist())


def redistribution(**changes):
    usual = {
        "sent": np.array([10.0, 20.0]),
        "received": np.array([20.0, 10.0]),
        "taken": np.array([100.0, 50.0]),
        "results": np.array([1000.0, 3000.0]),
        "skewed": np.array([0, 0]),
        "probe_read": np.array([30, 40]),
    }
    return Redistribution(**{**usual, **changes})


def parameters():
    return Parameters(row_bytes=125.0, row_us=1.0, results_per_us=10.0, detect_us=0.5, first_pass_us=2.0)


def test_the_slowest_part_of_the_slowest_node_sets_the_time():
    assert cost(redistribution(), 1000, parameters()).seconds == pytest.approx(350e-6)  # node 1 computes
    slow = cost(redistribution(), 1, parameters())
    assert slow.seconds == pytest.approx(20 * 125 * 8 / 1e6)  # its link carries 20 rows in one direction
    assert slow.throughput == pytest.approx(4000 / slow.seconds / 1e6)


def test_detection_costs_by_row_read():
    assert cost(redistribution(), 1000, parameters(), "online").seconds == pytest.approx(370e-6)
    assert cost(redistribution(), 1000, parameters(), "first pass").seconds == pytest.approx(430e-6)


def test_ten_times_the_rows_of_a_tenth_of_the_cost_give_the_same_throughput():
    rows = redistribution()
    more = redistribution(
        sent=rows.sent * 10, received=rows.received * 10, taken=rows.taken * 10, results=rows.results * 100
    )
    dearer = replace(parameters(), row_bytes=1250.0, row_us=10.0)
    assert cost(more, 5, dearer).throughput == pytest.approx(cost(rows, 5, parameters()).throughput)


def test_ranking_and_gap():
    theirs = {"a": [100.0], "b": [80.0]}
    assert same_ranking({"a": [50.0], "b": [40.0], "extra": [1.0]}, theirs, 0)
    assert not same_ranking({"a": [50.0], "b": [60.0]}, theirs, 0)
    assert not same_ranking({"a": [50.0], "b": [50.0]}, theirs, 0)
    assert widest_gap({"a": [50.0], "b": [44.0]}, theirs, 0, "a") == pytest.approx(0.1)
    assert widest_gap({"a": [50.0], "b": [36.0]}, theirs, 0, "a") == pytest.approx(0.1)


def test_published_columns_add_up_but_for_sfr():
    apart = {label: total - sum(published.cells("table_1")[label]) for label, total in published.totals().items()}
    assert apart == {"BPPR": 0, "PnR": 0, "PRPD": 0, "SFR": -9, "GraHJ": 0}


def test_the_most_frequent_key_of_ssb_has_the_published_share():
    shares = 1 / np.arange(1, 2_557) ** exponent(2_556, 0.0009)
    assert shares[0] / shares.sum() == pytest.approx(0.0009)
