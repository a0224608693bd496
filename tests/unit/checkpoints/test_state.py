"""`balajoin state`, on checkpoints that older balajoins wrote."""

import json
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from rich.console import Console

import old_states
from balajoin.checkpoints.display import as_json, tables
from balajoin.checkpoints.summary import Described, Describer, node_summaries
from balajoin.compute.exchange import NodeInputs
from balajoin.compute.node import Node
from balajoin.compute.state import HEAD
from balajoin.compute.store import with_shelf
from balajoin.core.blocks import BlockError
from balajoin.core.sides import SIDES
from balajoin.core.spec import JoinSpec
from balajoin.errors import StateError
from balajoin.routing import policies
from balajoin.routing.rule import PolicyName, SkewRule
from balajoin.routing.source import Source
from balajoin.spark.labels import source_of
from old_summary import HOT, ROWS, described, old_summary
from strategies import Memory

PINS = {
    "join.type": "inner",
    "join.nodes": 2,
    "probe.topic": "probe",
    "build.topic": "build",
    "probe.key": "key",
    "build.key": "key",
}
SECOND = 1_000_000
SPEC = JoinSpec(
    nodes=2,
    before_us=300 * SECOND,
    after_us=120 * SECOND,
    lateness_us=600 * SECOND,
    idle_after_ms=60_000,
    sources={"probe": 2, "build": 2},
    pins=PINS,
)
WATERMARKS = {"probe": 1699999852 * SECOND, "build": 1699999758 * SECOND}


def test_a_node_goes_on_from_a_state_of_format_2(tmp_path: Path) -> None:
    nodes, _ = old_states.states(2)
    for number, entries in nodes.items():
        node = Node(SPEC, entries.pop(HEAD), Memory(entries), tmp_path, number)
        assert {section: node.store.rows_of(section) for section in ("probe", "build")}.items() <= ROWS[number].items()
        assert {side: node.watermark(side) for side in SIDES} == WATERMARKS
        results = node.process(3, NodeInputs())
        assert list(results) == []
        again = Node(SPEC, results.outcome.state, Memory(entries), tmp_path, number)
        assert again.watermark("probe") == WATERMARKS["probe"]


def test_a_source_goes_on_from_a_state_of_format_2() -> None:
    _, sources = old_states.states(2)
    for label, state in sources.items():
        number = source_of(label, 2)
        source = Source.restore(
            number, 2, 0, 0, lambda written: policies.make("bala-join", 2, 0, SkewRule(threshold=0.1), written), state
        )
        assert source.latest["probe"] == [1700000471, 1700000452][number] * SECOND
        assert [lease[:2] for lease in source.leases] == [(HOT, 0)]
        assert [key.hash for key in source.policy.hot_keys()] == [HOT]


def test_a_state_of_format_2_is_told_by_node_and_source() -> None:
    found = old_summary()
    assert found.pins == PINS
    assert [node.rows for node in found.nodes] == ROWS
    assert [(len(node.leases), node.holds, len(node.uncovered)) for node in found.nodes] == [(0, 0, 1), (1, 0, 0)]
    assert all(node.watermarks == WATERMARKS for node in found.nodes)
    assert [(key.hash, key.rows, len(key.nodes)) for source in found.sources for key in source.hot_keys] == [
        (HOT, 56, 2),
        (HOT, 33, 2),
    ]
    assert found.keys == {HOT: "hot"}
    nodes, _ = old_states.states(2)
    assert [node.bytes for node in found.nodes] == [sum(map(len, nodes[node].values())) for node in (0, 1)]
    times = [time for n in (0, 1) for k, b in nodes[n].items() if k != HEAD for time in times_of(b)]
    assert min(node.oldest for node in found.nodes if node.oldest is not None) == min(times)
    assert max(node.newest for node in found.nodes if node.newest is not None) == max(times)


def times_of(block: bytes) -> list[int]:
    times: list[int] = with_shelf(block)[0].column("time").to_pylist()
    return times


def test_build_rows_of_other_homes_are_replicas() -> None:
    nodes, _ = old_states.states(2)
    build = next(block for block in nodes[0].values() if block[0] == 1)
    there = Describer(2, ()).describe(1, 5, build)
    assert (there.shelf, there.own) == ("build", 0)
    head = Described(1, None, 0, 0, 0, 0, 0, nodes[1][HEAD])
    _, (node,), _ = node_summaries([there, head])
    assert (node.rows["build"], node.rows["replicas"]) == (0, there.rows)


def test_people_see_rows_times_keys_and_what_was_read() -> None:
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    for part in tables(old_summary(), 5):
        console.print(part)
    lines = console.export_text().splitlines()
    assert lines[0] == "here: after batch 2 of join a-b; batch 3 was begun and will be repeated"
    assert "offsets of build: 9/2, 10/1" in lines
    (node,) = (line.split() for line in lines if line.startswith("1 ") and " 44 " in line)
    assert node[:5] == ["1", "109", "0", "44", "0"]
    assert "hot" in next(line for line in lines if str(HOT) in line)


def test_programs_get_all_of_it() -> None:
    told = json.loads(json.dumps(as_json(old_summary())))
    assert told["nodes"][0]["pins"][0] | {"asked": 1} == {
        "hash": HOT,
        "fragment": False,
        "earliest": "2023-11-14T22:10:04+00:00",
        "latest": "2023-11-14T22:20:56+00:00",
        "asked": 1,
    }
    assert told["nodes"][1]["leases"][0]["node"] == 0
    assert told["sources"][0]["hot_keys"][0]["key"] == "hot"
    assert told["offsets"]["probe"] == {"probe": {"0": 102, "1": 75}}


def test_damage_is_told_in_one_line() -> None:
    entries = described()
    with pytest.raises(StateError, match="node 0 has rows but no head: the checkpoint is damaged"):
        node_summaries(entry for entry in entries if entry.shelf is not None or entry.node)
    nodes, _ = old_states.states(2)
    number, block = next((number, block) for number, block in nodes[1].items() if number != HEAD)
    with pytest.raises(StateError, match=f"block {number} of node 1 is damaged") as raised:
        Describer(2, ()).describe(1, number, block[:-1])
    assert isinstance(raised.value.__cause__, BlockError)


@pytest.mark.parametrize("name", get_args(PolicyName))
@pytest.mark.parametrize("keys", [(), (5, 7)], ids=["detected", "given"])
def test_every_policy_tells_its_frequent_keys_without_its_rule(name: PolicyName, keys: tuple[int, ...]) -> None:
    rule = SkewRule(threshold=0.1, keys=keys, first_pass_rows=100)
    policy = policies.make(name, 4, 0, rule)
    hashes = np.array([5, 5, 5, 7] * 50 + list(range(100, 300)), np.int64)
    for _ in range(3):
        policy.note_build(hashes, np.arange(len(hashes)))
        policy.assign(hashes)
    told, hot_keys = policies.remembered(policy.state())
    assert told == name
    assert hot_keys[: len(policy.hot_keys())] == policy.hot_keys()
    assert name == "hash" or (name == "bppr" and not keys) or hot_keys[0].hash == 5
