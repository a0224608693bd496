"""Any content of a checkpoint is either used or refused with a message."""

import json
import tempfile
import zlib
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from balajoin.checkpoints.seed import Manifest
from balajoin.compute.exchange import Arrival, NodeInputs
from balajoin.compute.node import Node
from balajoin.core import codec
from balajoin.core.codec import refusing_damage
from balajoin.core.messages import Signal
from balajoin.core.sides import SIDES
from balajoin.errors import StateError
from balajoin.routing import policies
from balajoin.routing.rule import LEAST_SKEWED_ROWS, Measure, PolicyName, SkewRule
from balajoin.routing.sketch import Sketch
from balajoin.routing.source import Source
from hostile import HASHES, NODES, arrays, changed, hostile_blocks, join_types, json_values, spec
from oracle import Row
from strategies import SECOND, Memory, table


def recoded(kind: str, data: bytes, change: Any) -> bytes:
    """The state after `change`, with a correct checksum."""
    content = codec.decode(kind, json.loads(data[8:].partition(b"\n")[0])["version"], data)
    try:
        return codec.encode(kind, json.loads(data[8:].partition(b"\n")[0])["version"], change(content))
    except (TypeError, ValueError, AttributeError):
        assume(False)
        raise


@given(st.data())
def test_state_with_a_hostile_head_is_refused_or_read(data):
    whole = codec.encode("node", 3, {"rows": np.arange(6), "more": {"b": b"xy"}, "n": [1]})
    text, _, raw = whole[8:].partition(b"\n")
    head = data.draw(
        changed(json.loads(text), json_values | st.sampled_from(["O", "<i8,<i8", "<M8[s]", "|V9", "<U9", "<c16"]))
    )
    body = json.dumps(head).encode() + b"\n" + data.draw(st.just(raw) | st.binary(max_size=60))
    try:
        content = codec.decode("node", 3, b"bala" + zlib.crc32(body).to_bytes(4, "big") + body)
    except StateError:
        return
    assert type(content) is dict


@pytest.mark.parametrize("shape", [[1 << 40, 1 << 40], [1 << 62], [-1], [10**30], [0, 1 << 62], [1.0], ["1"], 3])
@pytest.mark.parametrize("form", ["<i8", "bytes"])
def test_an_array_of_any_shape_costs_no_more_than_its_bytes(shape, form):
    head = {"kind": "node", "version": 1, "content": {"a": None}, "raw": [[["a"], form, shape]]}
    body = json.dumps(head).encode() + b"\n12345678"
    with pytest.raises(StateError, match="damaged"):
        codec.decode("node", 1, b"bala" + zlib.crc32(body).to_bytes(4, "big") + body)


@pytest.mark.parametrize("form", ["O", "|O8", "<M8", "<m8[s]", "<U2", "|S8", "|V8", "<c8", "<i4,<i4", "i8", "<f8x", ""])
def test_arrays_of_anything_but_numbers_are_refused(form):
    head = {"kind": "node", "version": 1, "content": {"a": None}, "raw": [[["a"], form, [1]]]}
    body = json.dumps(head).encode() + b"\n12345678"
    with pytest.raises(StateError, match="damaged"):
        codec.decode("node", 1, b"bala" + zlib.crc32(body).to_bytes(4, "big") + body)


SKEWED = table([Row(b"%d" % (n % 7 if n % 3 else 0), n, b"v", 0, n) for n in range(10 * LEAST_SKEWED_ROWS)])


def a_source(policy: PolicyName, state: bytes | None, measure: Measure = "work") -> Source:
    rule = SkewRule(
        counters=16,
        keys=(HASHES[0],) if policy == "bppr" else (),
        first_pass_rows=5 * LEAST_SKEWED_ROWS,
        measure=measure,
    )
    return Source.restore(0, NODES, SECOND, SECOND, partial(policies.make, policy, NODES, 0, rule), state)


def route(source: Source) -> None:
    source.route(1000, {"probe": [SKEWED], "build": [SKEWED]})


@pytest.mark.parametrize(
    ("policy", "measure"), [*((name, "work") for name in get_args(PolicyName)), ("bala-join", "rows")]
)
@given(data=st.data())
def test_a_router_takes_its_state_or_refuses_it(policy, measure, data):
    first = a_source(policy, None, measure)
    route(first)

    def change(content: dict[str, Any]) -> Any:
        inner = codec.decode("policy", 1, content["policy"])
        if data.draw(st.booleans()):
            return {**content, "policy": codec.encode("policy", 1, data.draw(changed(inner, json_values | arrays)))}
        return data.draw(changed(content, json_values | arrays))

    try:
        source = a_source(policy, recoded("source", first.state(), change), measure)
    except StateError:
        return
    route(source)


@pytest.mark.parametrize("row", [1, 2], ids=["how many nodes", "the last node"])
@pytest.mark.parametrize("value", [-1, NODES + 1, 1 << 40])
def test_nodes_that_there_are_not_are_refused_before_a_kernel_writes_there(row, value):
    first = a_source("bala-join", None, "rows")
    route(first)

    def change(content: dict[str, Any]) -> dict[str, Any]:
        policy = codec.decode("policy", 1, content["policy"])
        sets = policy["content"]["partition"]["sets"]
        assert sets.shape[1], "no key was skewed"
        sets[row] = value
        return {**content, "policy": codec.encode("policy", 1, policy)}

    with pytest.raises(StateError, match="source state is damaged"):
        a_source("bala-join", recoded("source", first.state(), change), "rows")


@pytest.mark.parametrize(("row", "value"), [(1, -1), (1, NODES), (2, 0), (2, 3)])
def test_copies_that_cannot_be_are_refused(row, value):
    first = a_source("bala-join", None)
    route(first)

    def change(content: dict[str, Any]) -> dict[str, Any]:
        policy = codec.decode("policy", 1, content["policy"])
        copies = policy["content"]["by_work"]["copies"]
        assert copies.shape[1], "no key has copies"
        copies[row] = value
        return {**content, "policy": codec.encode("policy", 1, policy)}

    with pytest.raises(StateError, match="source state is damaged"):
        a_source("bala-join", recoded("source", first.state(), change))


@pytest.mark.parametrize("value", [np.zeros((1, 2), np.int64), np.zeros(2), [7], None], ids=str)
def test_keys_in_columns_that_cannot_be_are_refused(value):
    first = a_source("bala-join", None)
    route(first)

    def change(content: dict[str, Any]) -> dict[str, Any]:
        policy = codec.decode("policy", 1, content["policy"])
        policy["content"]["by_work"]["in_columns"] = value
        return {**content, "policy": codec.encode("policy", 1, policy)}

    with pytest.raises(StateError, match="source state is damaged"):
        a_source("bala-join", recoded("source", first.state(), change))


@pytest.mark.parametrize(
    "change",
    [
        lambda held: held[:, ::-1],
        lambda held: held[:2],
        lambda held: -held,
        lambda held: held[:, [0, 0]],
        lambda held: held * 1.0,
    ],
    ids=["order", "rows", "signs", "twice", "fractions"],
)
def test_counters_out_of_order_are_refused(change):
    sketch = Sketch(16)
    sketch.count(np.repeat(np.array(HASHES[:3]), [3, 2, 1]))
    with pytest.raises((TypeError, ValueError)):
        Sketch.restore(16, {"held": np.ascontiguousarray(change(sketch.held)), "total": 6})
    assert Sketch.restore(16, sketch.state()).held.tolist() == sketch.held.tolist()


def state_after(node: Node, batch: int, inputs: NodeInputs) -> bytes:
    results = node.process(batch, inputs)
    list(results)
    return results.outcome.state


@pytest.mark.parametrize("name", ["lineage", "seal"])
@pytest.mark.parametrize("value", ["..", "../outside", "/", "", "A" * 32, "a" * 31, 7])
def test_names_that_lead_out_of_the_cache_are_refused(name, value, tmp_path):
    cache, durable = tmp_path / "cache", Memory()
    precious = tmp_path / "outside" / "node-0" / "precious"
    precious.parent.mkdir(parents=True)
    precious.touch()
    node = Node(spec(), None, durable, cache, 0)
    state = recoded("node", state_after(node, 0, NodeInputs()), lambda content: {**content, name: value})
    with pytest.raises(StateError, match="node state is damaged"), refusing_damage("node"):
        Node(spec(), state, durable, cache, 0)
    assert precious.exists()


@pytest.mark.parametrize("change", [{"owed": 2}, {"overdue": [[0, 7]]}], ids=["results", "rows"])
def test_state_that_names_a_block_it_does_not_hold_is_refused(change, tmp_path):
    durable = Memory()
    written = state_after(Node(spec("full"), None, durable, tmp_path, 0), 0, NodeInputs())
    state = recoded("node", written, lambda content: {**content, **change})
    node = Node(spec("full"), state, durable, tmp_path, 0)
    with pytest.raises(StateError, match=r"the node state is damaged, block (-2|7) is missing: restore"):
        state_after(node, 2, NodeInputs())


@pytest.mark.parametrize("lost", ["rows", "index"])
def test_a_catalog_that_names_a_block_the_state_does_not_hold_is_refused(lost, tmp_path):
    rows = table([Row(b"%d" % n, n, b"v", 0, n) for n in range(20)])
    durable = Memory()
    state = state_after(Node(spec(), None, durable, tmp_path, 0), 0, NodeInputs([Arrival("probe", 0, 0, 1, [rows])]))
    durable.clear()
    Node(spec(), state, durable, tmp_path, 0)
    for file in tmp_path.rglob(f"*.{lost}"):
        file.unlink()
    with pytest.raises(StateError, match="the node state is damaged, block 0 is missing: restore"):
        Node(spec(), state, durable, tmp_path, 0)


def test_a_number_that_two_blocks_would_get_is_refused(tmp_path):
    rows = table([Row(b"%d" % n, n, b"v", 0, n) for n in range(20)])
    durable = Memory()
    written = state_after(Node(spec(), None, durable, tmp_path, 0), 0, NodeInputs([Arrival("probe", 0, 0, 1, [rows])]))
    state = recoded("node", written, lambda content: {**content, "next_number": 0})
    with pytest.raises(StateError, match="the node state is damaged, block 0 has a number that was not given yet"):
        Node(spec(), state, durable, tmp_path / "another", 0)


@given(type_=join_types, data=st.data())
def test_a_node_takes_its_state_or_refuses_it(type_, data):
    rows = table([Row(b"%d" % n, n, b"v", 0, n) for n in range(20)])
    arrivals = [Arrival(side, 0, 0, 1, [rows]) for side in SIDES]
    with tempfile.TemporaryDirectory() as folder:
        durable = Memory()
        node = Node(spec(type_), None, durable, Path(folder), 0)
        written = state_after(node, 0, NodeInputs(arrivals))
        state = recoded("node", written, lambda content: data.draw(changed(content, json_values | arrays)))
        if data.draw(st.booleans()):
            number = data.draw(st.sampled_from(sorted(durable)))
            durable[number] = data.draw(st.binary(max_size=40) | hostile_blocks().map(lambda b: bytes(8) + b))
        try:
            with refusing_damage("node"):
                restored = Node(spec(type_), state, durable, Path(folder) / "another", 0)
            state_after(restored, 1, NodeInputs(arrivals, [Signal(HASHES[0], 1, 5)]))
        except StateError:
            return


OFFSETS = {"probe": {"p": {"0": 5}}, "build": {"b": {"0": 1}}, "control": {"c": {"0": 3}}, "replicas": {"r": {"0": 0}}}


@given(data=st.data())
def test_a_manifest_is_read_or_refused(data):
    written = Manifest(3, OFFSETS, True, {0: b"one", 1: b"two"}).write()
    state = recoded("seed", written, lambda content: data.draw(changed(content, json_values | arrays)))
    try:
        manifest = Manifest.read(state)
    except StateError:
        return
    assert manifest.nodes >= 1
    assert manifest.offsets.keys() == OFFSETS.keys()
    assert type(manifest.owing) is bool
    assert all(type(source) is bytes for source in manifest.sources.values())


@pytest.mark.parametrize(
    "change",
    [{"nodes": 0}, {"nodes": True}, {"offsets": {}}, {"owing": 1}, {"sources": {"0": None}}, {"sources": {"x": b""}}],
    ids=str,
)
def test_a_damaged_manifest_is_refused(change):
    written = Manifest(3, OFFSETS, True, {0: b"one"}).write()
    with pytest.raises(StateError, match="the seed state is damaged: restore the checkpoint from a copy"):
        Manifest.read(recoded("seed", written, lambda content: {**content, **change}))
