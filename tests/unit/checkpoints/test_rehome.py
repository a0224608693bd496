"""The parts of a rescale that need neither Spark nor a broker. `test_cluster` rescales complete joins."""

import json
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

import old_states
from balajoin.checkpoints.leftovers import Entry
from balajoin.checkpoints.lock import sole_user
from balajoin.checkpoints.rehome import Rescale
from balajoin.checkpoints.seed import SEEDED, Manifest, Seed
from balajoin.checkpoints.summary import Described
from balajoin.compute.exchange import NodeInputs
from balajoin.compute.node import Node
from balajoin.compute.state import HEAD
from balajoin.compute.store import with_shelf
from balajoin.core.envelope import schema_of
from balajoin.core.hashing import homes
from balajoin.core.spec import JoinSpec
from balajoin.errors import StateError
from balajoin.routing import policies
from balajoin.routing.rule import PolicyName, SkewRule
from balajoin.routing.source import Source
from balajoin.routing.state import SourceState
from balajoin.spark.schemas import spark_schema
from strategies import Memory, results_of

SECOND = 1_000_000


def spec(nodes: int) -> JoinSpec:
    """The spec of the join in `data/state-2`."""
    pins = {
        "join.type": "inner",
        "probe.topic": "probe",
        "build.topic": "build",
        "probe.key": "key",
        "build.key": "key",
    }
    return JoinSpec(
        nodes=nodes,
        before_us=300 * SECOND,
        after_us=120 * SECOND,
        lateness_us=600 * SECOND,
        idle_after_ms=60_000,
        sources={"probe": 2, "build": 2},
        pins={**pins, "join.nodes": nodes},
    )


def entries(states: dict[int, dict[int, bytes]]) -> list[Entry]:
    return [Entry(node, number, block) for node, some in states.items() for number, block in some.items()]


def rescale(old: dict[int, dict[int, bytes]], batch: int, nodes: int) -> dict[int, dict[int, bytes]]:
    change = Rescale(len(old), batch, spec(nodes))
    parts = [(to, Entry(e.node, e.number, part)) for e in entries(old) for to, part in change.scatter(e)]
    return {node: dict(change.gather(entry for to, entry in parts if to == node)) for node in range(nodes)}


def stopped_after_a_batch(cache: Path) -> dict[int, dict[int, bytes]]:
    """The join of `data/state-2` after one empty batch, in which today's balajoin notes the rows in flight."""
    states, _ = old_states.states(2)
    for number, state in states.items():
        durable = Memory({at: block for at, block in state.items() if at >= 0})
        node = Node(spec(2), state[HEAD], durable, cache, number)
        results = node.process(3, NodeInputs())
        assert list(results) == []
        states[number] = {HEAD: results.outcome.state, **durable}
    return states


def test_a_state_that_does_not_tell_what_is_on_its_way_is_refused() -> None:
    states, _ = old_states.states(2)
    with pytest.raises(StateError, match=r"last written by an older balajoin.*: start and stop the join once"):
        rescale(states, 2, 3)


@pytest.mark.parametrize("nodes", [1, 3, 4])
def test_every_row_is_at_its_new_home_once(tmp_path: Path, nodes: int) -> None:
    old = stopped_after_a_batch(tmp_path)
    new = rescale(old, 3, nodes)
    assert rows_in(old) == rows_in(new)
    for node, state in new.items():
        for number, block in state.items():
            if number >= 0:
                assert (homes(with_shelf(block)[0].column("hash").to_numpy(), nodes) == node).all()


def rows_in(states: dict[int, dict[int, bytes]]) -> list[Any]:
    tables = [with_shelf(block) for state in states.values() for number, block in state.items() if number >= 0]
    return sorted((shelf, *row.values()) for rows, shelf in tables for row in rows.to_pylist())


def test_results_that_were_on_their_way_are_handed_out_once(tmp_path: Path) -> None:
    """Node 0 of the join in `data/state-2` has 13 guests, and none of the build rows of their key."""
    old = stopped_after_a_batch(tmp_path / "old")
    new = rescale(old, 3, 3)
    handed_out = []
    for number, state in new.items():
        head = state.pop(HEAD)
        node = Node(spec(3), head, durable := Memory(state), tmp_path, number)
        results = node.process(0, NodeInputs())
        handed_out += list(results)
        assert all(at >= 0 for at in durable)
        again = Node(spec(3), results.outcome.state, durable, tmp_path, number)
        assert list(again.process(1, NodeInputs())) == []
    found = results_of(handed_out)
    tables = [with_shelf(block) for number, block in old[0].items() if number >= 0]
    guests = [
        row for rows, shelf in tables if shelf == "probe" for row in rows.to_pylist()
        if homes(np.array([row["hash"]]), 2)[0] == 1
    ]  # fmt: skip
    build = [row for block in old[1].values() if block[0] == 1 for row in with_shelf(block)[0].to_pylist()]
    expected = sum(
        t["key"] == r["key"] and -300 * SECOND <= r["time"] - t["time"] <= 120 * SECOND for t in guests for r in build
    )
    assert len(guests) == 13
    assert set(found.values()) == {1}
    assert len(found) == expected > 100


def test_debts_of_nodes_that_were_never_woken_are_passed_on(tmp_path: Path) -> None:
    first = rescale(stopped_after_a_batch(tmp_path), 3, 3)
    again = rescale(first, -1, 2)
    owed = [
        sorted(block for state in states.values() for at, block in state.items() if at < HEAD)
        for states in (first, again)
    ]
    assert owed[0] == owed[1] != []
    assert rows_in(first) == rows_in(again)


@pytest.mark.parametrize("name", get_args(PolicyName))
def test_a_source_keeps_what_it_counted_and_forgets_where_rows_went(name: PolicyName) -> None:
    rule = SkewRule(threshold=0.1, first_pass_rows=100, keys=(5,) if name == "bppr" else ())
    hashes = np.array([5, 5, 5, 7] * 100, np.int64)
    policy = policies.make(name, 4, 1, rule)
    policy.assign(hashes)
    source = Source(1, 4, 0, SECOND, policy, {"probe": 7, "build": 8}, {(5, 2, False): 9})
    state = SourceState.read(source.state()).rescaled(3).write()
    after = Source.restore(1, 3, 0, SECOND, lambda written: policies.make(name, 3, 1, rule, written), state)
    assert (after.latest, after.leases) == ({"probe": 7, "build": 8}, {})
    before, hot = policy.hot_keys(), after.policy.hot_keys()
    assert [(key.hash, key.rows, key.share) for key in hot] == [(key.hash, key.rows, key.share) for key in before]
    assert all(node < 3 for key in hot for node in key.nodes)
    targets = after.policy.assign(hashes).targets
    assert set(targets.tolist()) <= {0, 1, 2}
    with pytest.raises(StateError, match=r"join\.nodes is 4"):
        policies.make(name, 4, 1, rule, SourceState.read(state).policy)


def test_reading_begins_where_it_stopped_and_at_the_beginning_of_new_partitions() -> None:
    seed = Seed({"probe": {"clicks": {"0": 5, "1": 7}}, "build": {"shows": {"0": 1}}})
    partitions = {"clicks": 3}
    assert json.loads(seed.first_offsets("probe", "clicks", partitions, "latest")) == {
        "clicks": {"0": 5, "1": 7, "2": -2}
    }
    with pytest.raises(StateError, match="made for a join that reads shows, not clicks"):
        seed.first_offsets("build", "clicks", partitions, "latest")
    assert Seed().first_offsets("probe", "clicks", partitions, "latest") == "latest"


def test_a_manifest_keeps_its_bytes() -> None:
    """Checkpoints that were rescaled earlier stay readable, and older versions read those written now."""
    written = (
        b'bala\xb7\xc7\xa6Z{"kind":"seed","version":1,"content":{"nodes":3,"offsets":{"probe":{"clicks":{"0":5,"1":7}},'
        b'"build":{"shows":{"0":1}},"control":{"c":{"0":3}},"replicas":{"r":{"0":0}}},"owing":true,'
        b'"sources":{"0":null,"1":null}},'
        b'"raw":[[["sources","0"],"bytes",[3]],[["sources","1"],"bytes",[3]]]}\nonetwo'
    )
    manifest = Manifest.read(written)
    assert (manifest.nodes, manifest.owing, manifest.sources) == (3, True, {0: b"one", 1: b"two"})
    assert manifest.offsets["probe"] == {"clicks": {"0": 5, "1": 7}}
    assert manifest.write() == written


def test_schemas_of_rescaled_states_are_those_of_spark() -> None:
    assert spark_schema(SEEDED).simpleString() == "struct<node:bigint,number:bigint,block:binary>"
    assert spark_schema(schema_of(Described)).simpleString() == (
        "struct<node:int,shelf:string,rows:bigint,own:bigint,size:bigint,earliest:bigint,latest:bigint,note:binary>"
    )


def test_a_checkpoint_has_one_user(tmp_path: Path) -> None:
    place = tmp_path / "new" / "checkpoint"
    with sole_user(place), sole_user(place):
        assert not place.exists()
    taken = pytest.raises(StateError, match=f"another process uses the checkpoint {place}: ")
    with sole_user(place, create=True), taken, sole_user(place):
        raise AssertionError
    with sole_user(place), sole_user(None), sole_user(None, create=True):
        pass
