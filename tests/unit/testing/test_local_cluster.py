"""`balajoin.testing` as a user's test sees it: rows in, the join's results out."""

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from typing import get_args

import pytest

import oracle
from balajoin import JoinSettings, Skew
from balajoin.core.spec import JoinType
from balajoin.routing import policies
from balajoin.routing.rule import PolicyName, SkewRule
from balajoin.testing import LocalCluster, Result, Row

SECOND = 1_000_000


def rows(count: int, keys: Iterable[str], partitions: int, seed: int, name: str) -> list[Row]:
    """One each second, at random partitions. Their values tell them apart."""
    rng, keys = random.Random(seed), list(keys)
    return [Row(rng.choice(keys), time, f"{name} {time}", rng.randrange(partitions)) for time in range(count)]


def as_the_oracle_has_it(row: Row) -> oracle.Row:
    return oracle.Row(row.key, round(row.time * SECOND), row.value, row.partition, 0)


def expected(type_: JoinType, probe: Iterable[Row], build: Iterable[Row], before_s: int, after_s: int) -> set[Result]:
    """The join by its definition."""
    given = {as_the_oracle_has_it(row): row for row in (*probe, *build)}
    both = (map(as_the_oracle_has_it, side) for side in (probe, build))
    joined = oracle.join(type_, *both, before_s * SECOND, after_s * SECOND)
    return {Result(*(row and given[row] for row in result)) for result in joined}


@pytest.mark.parametrize("type_", get_args(JoinType))
def test_results_are_those_of_the_definition(type_: JoinType) -> None:
    probe = rows(60, ("a", "b", "c", "only clicked"), 3, 1, "click")
    build = rows(60, ("a", "b", "c", "only shown"), 3, 2, "show")
    cluster = LocalCluster(
        JoinSettings(type=type_, before="5 s", after="1 s", lateness="10 s", idle_after="30 s", nodes=3), sources=3
    )
    results = []
    for at in range(0, 60, 6):
        results += cluster.feed(probe[at : at + 6], build[at : at + 6])
    results += cluster.idle("5 min")
    assert Counter(results) == Counter(expected(type_, probe, build, 5, 1))
    assert cluster.late == {"probe": [], "build": []}


HOT_KEY_JOINS: list[tuple[PolicyName, JoinType]] = [
    *((policy, "inner") for policy in get_args(PolicyName)),
    *(("bala-join", type_) for type_ in get_args(JoinType)[1:]),
]


@pytest.mark.parametrize(("policy", "type_"), HOT_KEY_JOINS)
def test_a_hot_key_is_spread_over_nodes_and_loses_nothing(policy: PolicyName, type_: JoinType) -> None:
    probe = rows(320, ["hot"] * 9 + ["cold"], 4, 3, "click")
    build = rows(320, ["hot", "cold"], 4, 4, "show")
    skew = Skew(keys=["hot"] if policy == "bppr" else [], first_pass_rows=40)
    settings = JoinSettings(type=type_, before="3 s", after="0 s", lateness="80 s", nodes=4, policy=policy, skew=skew)
    cluster = LocalCluster(settings, sources=4)
    results = []
    for at in range(0, 320, 80):
        results += cluster.feed(probe[at : at + 80], build[at : at + 80])
    results += cluster.idle("10 min")
    assert Counter(results) == Counter(expected(type_, probe, build, 3, 0))
    assert (min(cluster.probe_rows) > 0) == (policy != "hash")


def test_pairs_of_a_hot_key_come_when_its_build_rows_have_reached_the_other_nodes() -> None:
    show, clicks = Row("hot", 0, "show"), [Row("hot", 1, f"click {number}") for number in range(40)]
    settings = JoinSettings(before="1 min", after="0 s", policy="bppr", skew=Skew(keys=["hot"]))
    cluster = LocalCluster(settings)
    at_home = cluster.feed(clicks, [show])
    elsewhere = cluster.feed()
    assert at_home
    assert elsewhere
    assert {*at_home, *elsewhere} == {Result(click, show) for click in clicks}
    assert cluster.drain() == []


def test_a_row_without_a_match_comes_when_time_has_passed() -> None:
    click = Row("user-1", 100, "click")
    cluster = LocalCluster(JoinSettings(type="left", before="5 min", after="10 s", idle_after="1 min"))
    assert cluster.feed(probe=[click]) == []
    assert cluster.idle("1 min") == []
    assert cluster.idle("1 min") == [Result(click, None)]
    assert cluster.idle("1 h") == []


def test_later_rows_decide_that_a_row_has_no_match() -> None:
    click = Row("user-1", 100, "click")
    cluster = LocalCluster(JoinSettings(type="left", before="5 min", after="10 s"))
    cluster.feed(probe=[click])
    cluster.feed(probe=[Row("user-2", 200)], build=[Row("user-2", 200)])
    assert cluster.feed(build=[Row("user-3", 201)]) == [Result(click, None)]


def test_late_rows_are_told_apart() -> None:
    late = Row("user-1", 50, "late")
    cluster = LocalCluster(JoinSettings(before="5 min", after="0 s", lateness="10 s"))
    cluster.feed(probe=[Row("user-1", 100)], build=[Row("user-1", 100)])
    cluster.feed(build=[late])
    assert cluster.late == {"probe": [], "build": [late]}


def test_equal_rows_are_rows_of_their_own() -> None:
    click, show = Row("user-1", 1), Row("user-1", 0)
    cluster = LocalCluster(JoinSettings(before="1 min", after="0 s"))
    assert cluster.feed([click, click], [show]) == [Result(click, show)] * 2


def test_keys_and_values_are_texts_or_bytes() -> None:
    click, show = Row("user-1", 0.5, b"\xff"), Row(b"user-1", 0.25, "show")
    cluster = LocalCluster(JoinSettings(before="1 min", after="0 s"))
    assert cluster.feed([click], [show]) == [Result(click, show)]


def test_a_policy_of_ones_own_routes() -> None:
    made = []

    def make(source: int, state: bytes | None) -> policies.Policy:
        made.append((source, state is None))
        return policies.make("hash", 4, source, SkewRule(), state)

    cluster = LocalCluster(JoinSettings(before="1 min", after="0 s"), sources=2, policy=make)
    for time in range(2):
        cluster.feed([Row("user-1", time, partition=1)])
    assert made == [(1, True), (1, False)]


def test_a_partition_that_is_not_there_is_refused() -> None:
    cluster = LocalCluster(JoinSettings(before="1 min", after="0 s"), sources=2)
    with pytest.raises(ValueError, match="there are 2 sources"):
        cluster.feed([Row("user-1", 0, partition=2)])


def test_its_files_are_gone_when_it_is() -> None:
    cluster = LocalCluster(JoinSettings(before="1 min", after="0 s"))
    cluster.feed([Row("user-1", 0)])
    folder = cluster.cache
    assert folder.exists()
    del cluster
    assert not folder.exists()


def test_it_needs_no_more_than_a_nodes_batch_does() -> None:
    program = "import sys, {}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    used = [
        {*subprocess.run([sys.executable, "-c", program.format(module)], capture_output=True, text=True).stdout.split()}
        for module in ("balajoin.compute.batch", "balajoin.testing")
    ]
    assert {"pydantic", "rich", "prometheus_client"} & used[1] == set()
    assert used[0]
    assert {name for name in used[1] - used[0] if name not in sys.stdlib_module_names} == set()
