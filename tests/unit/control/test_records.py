"""Control and replica records can be read back, and other records are refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balajoin.control import encoding
from balajoin.control.encoding import (
    HEADER,
    read_control,
    read_replica,
    read_signal,
    report_records,
    shipment_records,
    signal_record,
    tick_record,
)
from balajoin.core.blocks import decode
from balajoin.core.messages import ForeignRecordError, Grant, Report, Shipment, Signal, Stamp, Tick
from oracle import Row
from strategies import rows_of, table

STAMP = Stamp("6f1e", 41, "77aa")
longs = st.integers(-(1 << 63), (1 << 63) - 1)
signals = st.builds(
    Signal,
    hash=longs,
    node=st.integers(0, 1000),
    until=longs,
    fragment=st.booleans(),
    again=st.booleans(),
    key=st.binary(max_size=20),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(signals)
def test_a_signal_is_read_as_it_was_written(signal):
    record = signal_record(STAMP, 3, signal)
    stamp, read = read_signal(record.value.decode())
    assert stamp == STAMP
    assert (read.hash, read.node, read.until) == (signal.hash, signal.node, signal.until)
    assert (read.fragment, read.again) == (signal.fragment, signal.again)


def test_a_person_can_read_a_signal():
    record = signal_record(STAMP, 3, Signal(-5, 2, 1_700_000_000_000_000, key="käse".encode()))
    assert json.loads(record.value) == {
        "version": 2,
        "join": "6f1e",
        "batch": 41,
        "plan": "77aa",
        "home": 3,
        "node": 2,
        "hash": -5,
        "until": 1_700_000_000_000_000,
        "fragment": False,
        "again": False,
        "since": 0,
        "key": "käse",
    }
    assert signal_record(STAMP, 3, Signal(1, 2, 3, key=b"\xff" * 500)).value.count(b"xff") == 64


def test_a_report_and_a_tick_are_read_as_they_were_written(monkeypatch):
    monkeypatch.setattr(encoding, "_MAX_PART_BYTES", 10_000)
    rows = [Row(b"", n, b"", 0, n) for n in range(1000)]
    written = list(report_records(STAMP, Report(2, 5, [table(rows)])))
    assert len(written) > 1
    assert {record.key for record in written} == {b"5"}
    headers = [dict(record.headers)[HEADER].decode() for record in written]
    read = [read_replica(header, record.value) for header, record in zip(headers, written, strict=True)]
    assert all(isinstance(report, Report) for _, report in read)
    assert {(stamp, report.guest, report.home) for stamp, report in read} == {(STAMP, 2, 5)}
    assert rows_of(*(table for _, report in read for table in report.rows)) == rows
    with pytest.raises(ForeignRecordError):
        read_replica(headers[0], written[0].value[:-1])
    tick = tick_record(STAMP, 1_700_000_000_000).value.decode()
    assert read_control(tick) == (STAMP, Tick(1_700_000_000_000))
    assert read_control(signal_record(STAMP, 3, Signal(1, 2, 3)).value.decode()) == (STAMP, Signal(1, 2, 3))


def parts_of(shipment: Shipment) -> list[encoding.Part]:
    return [
        read_replica(dict(record.headers)[HEADER].decode(), record.value)[1]
        for record in shipment_records(STAMP, shipment)
    ]


def test_a_shipment_is_split_into_records_that_a_broker_takes(monkeypatch):
    rows = [Row(b"k", n, b"v" * 100, 0, n) for n in range(1000)]
    monkeypatch.setattr(encoding, "_MAX_PART_BYTES", 10_000)
    grants = [Grant(1, 2), Grant(3, 4, True)]
    written = list(shipment_records(STAMP, Shipment(0, 1, [table(rows)], grants, [1, 3])))
    assert len(written) > 10
    assert max(len(record.value) for record in written) < 12_000
    assert {record.key for record in written} == {b"1"}
    parts = parts_of(Shipment(0, 1, [table(rows)], grants, [1, 3]))
    assert [part.part for part in parts] == list(range(len(parts)))
    assert {part.parts for part in parts} == {len(parts)}
    assert len({part.attempt for part in parts}) == 1
    assert rows_of(*(decode(part.block) for part in parts)) == rows
    assert (parts[0].grants, parts[0].pulled) == (tuple(grants), (1, 3))
    assert not any(part.grants or part.pulled for part in parts[1:])


def test_a_shipment_without_rows_is_one_record():
    (part,) = parts_of(Shipment(0, 1, [], [Grant(1, 2)]))
    assert (part.block, part.parts, part.grants) == (b"", 1, (Grant(1, 2),))


@given(st.text(max_size=30) | json_values.map(json.dumps) | st.none())
def test_rubbish_is_foreign(text):
    for read in (read_signal, lambda note: read_replica(note, b"")[1]):
        with pytest.raises(ForeignRecordError):
            read(text)


@given(signals, st.data())
def test_a_changed_record_is_foreign_or_still_of_the_right_types(signal, data):
    content = json.loads(signal_record(STAMP, 3, signal).value)
    name = data.draw(st.sampled_from(sorted(content)))
    content[name] = data.draw(json_values)
    try:
        stamp, read = read_signal(json.dumps(content))
    except ForeignRecordError:
        return
    assert [type(value) for value in (stamp.join, stamp.batch)] == [str, int]
    assert [type(value) for value in (read.hash, read.node, read.until, read.since)] == [int] * 4
    assert [type(value) for value in (read.fragment, read.again, read.key)] == [bool, bool, bytes]
    assert all(-(1 << 63) <= value < 1 << 63 for value in (stamp.batch, read.hash, read.node, read.until))


@given(st.data())
def test_a_changed_part_is_foreign_or_still_of_the_right_types(data):
    (record,) = shipment_records(STAMP, Shipment(0, 1, [], [Grant(1, 2)], [1]))
    content = json.loads(dict(record.headers)[HEADER])
    name = data.draw(st.sampled_from(sorted(content)))
    content[name] = data.draw(json_values)
    try:
        part = read_replica(json.dumps(content), b"")[1]
    except ForeignRecordError:
        return
    assert all(isinstance(grant, Grant) for grant in part.grants)
    assert all(type(hash_) is int for hash_ in part.pulled)


def test_a_newer_version_is_foreign():
    content = json.loads(signal_record(STAMP, 3, Signal(1, 2, 3)).value)
    with pytest.raises(ForeignRecordError, match="version 3, not 2"):
        read_signal(json.dumps({**content, "version": 3}))


def test_an_older_version_names_no_plan():
    content = json.loads(signal_record(STAMP, 3, Signal(1, 2, 3)).value)
    del content["plan"]
    with pytest.raises(ForeignRecordError, match="plan is not str"):
        read_signal(json.dumps(content))
    assert read_signal(json.dumps({**content, "version": 1})) == (Stamp("6f1e", 41, ""), Signal(1, 2, 3))


def test_deep_nesting_does_not_break_the_reader():
    with pytest.raises(ForeignRecordError):
        read_signal("[" * 100_000)
