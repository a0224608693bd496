"""Any record on the control or replica topic is used or counted, and costs no more memory than its bytes."""

import json
import tempfile
import tracemalloc
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from balajoin.compute.batch import Inputs
from balajoin.compute.exchange import Arrival, NodeInputs
from balajoin.compute.guest import Guest
from balajoin.compute.node import Node
from balajoin.control.encoding import read_replica, shipment_records, wake_up_record
from balajoin.control.tail import _line, describe_part, describe_signal
from balajoin.core import blocks
from balajoin.core.blocks import EARLIEST_US, LATEST_US, ROWS, decode, encode
from balajoin.core.hashing import home
from balajoin.core.messages import Shipment
from balajoin.core.sides import SIDES
from balajoin.errors import BlockError
from hostile import (
    A_HEADER,
    A_RECORD,
    A_REPORT,
    A_REPORTING,
    A_SIGNAL,
    A_TICK,
    EMPTY_ROW,
    HASHES,
    NODES,
    NOW,
    ROWS_OF_0,
    STAMP,
    changed,
    hostile_blocks,
    join_types,
    json_values,
    longs,
    odd_texts,
    sealed,
    spec,
    stream,
)
from oracle import Row
from strategies import Memory, hash_of, table


@given(hostile_blocks())
@example(sealed(bytes(8)))  # an Arrow stream without a schema
@example(sealed(b"\xff\xff\xff\xff" + bytes(4)))
def test_a_hostile_block_is_rows_or_refused(block):
    try:
        rows = decode(block)
    except BlockError:
        return
    assert rows.schema == ROWS
    assert rows.to_pylist() is not None
    assert not any(row[name] is None for row in rows.to_pylist() for name in ROWS.names if name != "value")


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
@pytest.mark.parametrize("batches", [1, 8])
def test_a_block_that_would_unpack_to_gigabytes_is_refused_before_it_does(compression, batches):
    size = 2 * blocks.MAX_BLOCK_BYTES // batches
    one = table([Row(b"k", 0, bytes(size), 0, 0)])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, ROWS, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        for _ in range(batches):
            writer.write_table(one)
    bomb = sealed(sink.getvalue().to_pybytes())
    assert len(bomb) < 2 << 20
    del one
    before = pa.total_allocated_bytes()
    with pytest.raises(BlockError, match="would unpack to 6710"):
        decode(bomb)
    assert pa.total_allocated_bytes() == before


def test_what_is_written_can_always_be_read_whatever_its_size():
    large = table([Row(b"k", 0, bytes(2 * blocks.MAX_BLOCK_BYTES), 0, 0)])
    assert decode(encode(large, "lz4")).equals(large)
    just = table([Row(b"k", 0, bytes(blocks.MAX_BLOCK_BYTES - 4096), 0, 0)])
    packed = encode(just, "lz4")
    assert len(packed) < 1 << 20
    assert decode(packed).equals(just)
    (record,) = shipment_records(STAMP, Shipment(0, 1, [large]))
    assert decode(read_replica(record.headers[0][1].decode(), record.value)[1].block).equals(large)


@pytest.mark.parametrize("ends", [[0, 1 << 30], [77, 5], [-8, 2]], ids=str)
def test_offsets_that_lead_out_of_a_block_are_refused(ends):
    """Following such offsets would read memory outside the block."""
    content = stream(table([Row(b"k", 0, b"v" * 77, 0, 0)]))
    before, _, after = content.rpartition(np.array([0, 77], np.int32).tobytes())
    with pytest.raises(BlockError, match="not a block of rows"):
        decode(sealed(before + np.array(ends, np.int32).tobytes() + after))


def test_rows_that_lack_what_a_row_has_are_refused():
    for name in ROWS.names:
        nulls = ROWS_OF_0.set_column(
            ROWS.names.index(name), ROWS.field(name), pa.nulls(ROWS_OF_0.num_rows, ROWS.field(name).type)
        )
        if name == "value":
            assert decode(sealed(stream(nulls))).equals(nulls)
        else:
            with pytest.raises(BlockError, match="lack"):
                decode(sealed(stream(nulls)))


any_note = st.sampled_from([A_SIGNAL, A_TICK, A_HEADER, A_REPORT]).flatmap(changed).map(json.dumps)


@given(
    st.sampled_from(["signal", "replica", "foreign"]),
    json_values.map(json.dumps) | any_note | odd_texts | st.none(),
    st.none() | st.binary(max_size=20) | hostile_blocks() | st.sampled_from([A_RECORD.value, A_REPORTING.value]),
)
def test_any_record_is_taken_or_counted(section, note, block):
    inputs = Inputs.read(NOW, [SimpleNamespace(**{**EMPTY_ROW, "section": section, "note": note, "block": block})])
    taken = sum(map(len, (inputs.signals, inputs.ticks_ms, inputs.parts, inputs.reports)))
    assert taken + inputs.foreign + inputs.stale == 1


def nearly(*contents: dict[str, Any]) -> st.SearchStrategy[str]:
    """Records with one of their numbers replaced."""
    numbers = longs | st.integers(-1, NODES) | st.booleans() | st.sampled_from(HASHES)
    return st.sampled_from(contents).flatmap(lambda content: changed(content, numbers)).map(json.dumps)


@given(
    join_types,
    st.lists(nearly(A_SIGNAL, A_TICK), max_size=3),
    st.lists(
        st.tuples(
            nearly(A_HEADER, A_REPORT),
            hostile_blocks() | st.sampled_from([A_RECORD.value, A_REPORTING.value, b""]),
        ),
        max_size=3,
    ),
)
def test_a_node_survives_whatever_passes_for_a_record(type_, signals, parts):
    rows = [SimpleNamespace(**{**EMPTY_ROW, "section": "signal", "note": note}) for note in signals]
    rows += [SimpleNamespace(**{**EMPTY_ROW, "section": "replica", "note": n, "block": b}) for n, b in parts]
    inputs = Inputs.read(NOW, rows)
    some = table([Row(b"%d" % n, n, b"v", 0, n) for n in range(20)])
    arrivals = [Arrival(side, 0, 0, 1, [some]) for side in SIDES]
    with tempfile.TemporaryDirectory() as folder:
        for number in (0, 1):
            durable = Memory()
            node = Node(spec(type_), None, durable, Path(folder), number)
            results = node.process(NOW.batch, replace(inputs.of_node(), arrivals=arrivals))
            list(results)
            again = Node(spec(type_), results.outcome.state, durable, Path(folder), number)
            list(again.process(NOW.batch + 1, NodeInputs(arrivals)))


@pytest.mark.parametrize(
    ("section", "note"),
    [
        ("signal", {**A_SIGNAL, "key": "\ud800"}),
        ("signal", {**A_SIGNAL, "batch": -1}),
        ("replica", {**A_HEADER, "batch": -1}),
        ("signal", {**A_TICK, "tick_ms": -1}),
        ("signal", {**A_TICK, "tick_ms": (1 << 63) - 1}),
        ("replica", {**A_REPORT, "batch": -1}),
    ],
)
def test_what_no_operator_writes_is_foreign(section, note):
    row = {**EMPTY_ROW, "section": section, "note": json.dumps(note), "block": A_RECORD.value}
    assert Inputs.read(NOW, [SimpleNamespace(**row)]).foreign == 1


def test_a_wake_up_is_not_taken_for_an_attack():
    row = SimpleNamespace(**{**EMPTY_ROW, "section": "signal", "note": wake_up_record().value.decode()})
    inputs = Inputs.read(NOW, [row])
    assert (inputs.foreign, inputs.stale) == (0, 1)


def test_a_shipment_that_claims_a_billion_parts_costs_nothing():
    part = read_replica(json.dumps({**A_HEADER, "parts": 10**9}), A_RECORD.value)[1]
    guest = Guest(1, NODES)
    tracemalloc.start()
    try:
        assert guest.accept([part], NOW.batch) == []
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert guest.foreign_parts == 1


@pytest.mark.parametrize(
    "change",
    [{"node": 2}, {"home": 1}, {"home": 7}, {"home": -1}, {"home": 2}, {"grants": [[h, 1, False] for h in HASHES]}],
    ids=str,
)
def test_a_shipment_that_its_home_could_not_have_sent_is_counted(change):
    part = read_replica(json.dumps({**A_HEADER, **change}), A_RECORD.value)[1]
    guest = Guest(1, NODES)
    assert guest.accept([part], NOW.batch) == []
    assert (guest.foreign_parts, guest.channels) == (1, {})


@pytest.mark.parametrize("time", [EARLIEST_US - 1, LATEST_US + 1, (1 << 63) - 1, -(1 << 63)])
def test_reports_with_times_that_no_edge_lets_in_are_foreign(time):
    block = encode(table([Row(b"k", time, b"", 0, 0)]))
    row = SimpleNamespace(**{**EMPTY_ROW, "section": "replica", "note": json.dumps(A_REPORT), "block": block})
    assert Inputs.read(NOW, [row]).foreign == 1


@pytest.mark.parametrize("time", [EARLIEST_US - 1, LATEST_US + 1, (1 << 63) - 1, -(1 << 63)])
def test_replicas_with_times_that_no_edge_lets_in_are_counted(time):
    key = next(b"%d" % n for n in range(20) if home(hash_of(b"%d" % n), NODES) == 0)
    (record,) = shipment_records(STAMP, Shipment(0, 1, [table([Row(key, time, b"v", 0, 0)])]))
    guest = Guest(1, NODES)
    assert guest.accept([read_replica(record.headers[0][1].decode(), record.value)[1]], NOW.batch) == []
    assert guest.foreign_parts == 1


@given(
    json_values.map(json.dumps) | any_note | odd_texts,
    json_values.map(json.dumps) | any_note | odd_texts,
    hostile_blocks() | st.just(A_RECORD.value),
    longs,
)
@example(json.dumps({**A_SIGNAL, "until": (1 << 63) - 1}), "{}", b"", 1 << 62)
@example(json.dumps({**A_SIGNAL, "key": "\x1b[2J\u202e"}), "{}", b"", -1)
def test_the_tail_has_a_line_for_whatever_is_there(value, header, block, timestamp):
    class Message(SimpleNamespace):
        topic = lambda self: self.name  # noqa: E731
        partition = offset = lambda self: 0
        timestamp = lambda self: (1, timestamp)  # noqa: E731
        value = lambda self: self.content  # noqa: E731
        headers = lambda self: [("balajoin", header.encode("utf-8", "surrogatepass"))]  # noqa: E731

    describe = {"control": describe_signal, "replicas": describe_part}
    for message in (
        Message(name="control", content=value.encode("utf-8", "surrogatepass")),
        Message(name="replicas", content=block),
    ):
        line = _line(message, describe)
        line.encode()
        assert line.isprintable()
