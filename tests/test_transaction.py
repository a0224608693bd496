"""Attempts to write a node's batch, on a real broker: whatever becomes of them, readers see each row once."""

import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from kafka import KafkaConsumer
from kafka import TopicPartition as Partition

from balajoin.errors import KafkaError, StateError
from balajoin.sinks.marker import Marker
from balajoin.sinks.transaction import Target, Transaction, take_over
from kafka_data import everything, headers_of

NODES = 2
SETTINGS = {"policy": '"bala-join"'}


@pytest.fixture
def target(bootstrap: str, make_topic: Callable[..., str]) -> Target:
    return Target(
        make_topic("out", partitions=3), make_topic("commits", partitions=NODES), (("bootstrap.servers", bootstrap),)
    )


@pytest.fixture
def now() -> Marker:
    return Marker(str(uuid.uuid4()), node=1, batch=7, planned_ms=1_000, settings=SETTINGS)


def records(*ids: str) -> pa.RecordBatch:
    texts = pa.array([id_.encode() for id_ in ids], pa.binary())
    return pa.record_batch({"key": texts, "value": texts, "id": texts})


def attempt(target: Target, now: Marker, *ids: str) -> int:
    with Transaction(target, now) as transaction:
        transaction.write(records(*ids))
        return transaction.commit()


def ids_by_librdkafka(target: Target) -> list[str]:
    return sorted(headers_of(message)["balajoin-id"] for message in everything(_servers(target), target.topic))


def ids_by_kafka_python(target: Target) -> list[str]:
    consumer = KafkaConsumer(bootstrap_servers=_servers(target), isolation_level="read_committed")
    try:
        partitions = [Partition(target.topic, number) for number in consumer.partitions_for_topic(target.topic)]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        found: list[str] = []
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            for messages in consumer.poll(timeout_ms=100).values():
                found.extend(dict(message.headers)["balajoin-id"].decode() for message in messages)
        return sorted(found)
    finally:
        consumer.close()


def _servers(target: Target) -> str:
    return dict(target.options)["bootstrap.servers"]


def assert_readers_see(target: Target, *ids: str) -> None:
    assert ids_by_librdkafka(target) == sorted(ids)
    assert ids_by_kafka_python(target) == sorted(ids)


def test_rows_and_their_marker_arrive_together(target: Target, now: Marker) -> None:
    with Transaction(target, now) as transaction:
        transaction.write(records("a", "b"))
        transaction.write(records("c"))
        assert transaction.commit() == 3
    assert_readers_see(target, "a", "b", "c")
    assert target.last_marker(now.query, now.node) == replace(now, rows=3)
    assert target.last_marker(now.query, 0) is None


def test_a_crash_before_the_commit_leaves_nothing_to_see(target: Target, now: Marker) -> None:
    crashed = Transaction(target, now)
    crashed.write(records("a", "b"))
    crashed._producer.flush()
    assert attempt(target, now, "a", "b") == 2
    assert_readers_see(target, "a", "b")


def test_a_crash_after_the_commit_is_not_written_again(target: Target, now: Marker) -> None:
    assert attempt(target, now, "a", "b") == 2
    assert attempt(target, now, "b", "a") == 0
    assert attempt(target, replace(now, batch=8, planned_ms=2_000), "c") == 1
    assert_readers_see(target, "a", "b", "c")


def test_a_zombie_is_fenced_by_the_next_attempt(target: Target, now: Marker) -> None:
    with Transaction(target, now) as zombie:
        zombie.write(records("a"))
        assert attempt(target, now, "a") == 1
        zombie.write(records("b"))
        with pytest.raises(StateError, match="another process writes the results of node 1"):
            zombie.commit()
    assert_readers_see(target, "a")


def test_a_failed_attempt_lets_readers_go_on_at_once(target: Target, now: Marker) -> None:
    def fail() -> None:
        with Transaction(target, now) as transaction:
            transaction.write(records("a"))
            transaction._producer.flush()
            raise ValueError("upstream")

    with pytest.raises(ValueError, match="upstream"):
        fail()
    assert attempt(target, replace(now, node=0), "b") == 1
    assert_readers_see(target, "b")


def test_markers_are_found_below_others_and_below_aborted_ones(target: Target, now: Marker) -> None:
    assert attempt(target, now, "a") == 1
    other = replace(now, query=str(uuid.uuid4()))
    for batch in range(20):
        attempt(target, replace(other, batch=batch), "o")
    for _ in range(20):
        producer = take_over(target, other.query, other.node)
        producer.begin_transaction()
        producer.produce(target.commit_topic, b"aborted", other.key, other.node)
        producer.flush()
        producer.abort_transaction()
    assert target.last_marker(now.query, now.node) == replace(now, rows=1)
    assert target.last_marker(other.query, now.node) == replace(other, batch=19, rows=1)


def test_another_batch_of_the_same_number_is_refused(target: Target, now: Marker) -> None:
    attempt(target, now, "a")
    for earlier in (replace(now, planned_ms=999), replace(now, batch=3)):
        with pytest.raises(StateError, match="checkpoint is older than the results"):
            attempt(target, earlier, "a")
    with pytest.raises(StateError, match=r'join.policy was "bala-join", and part of it is written; it is "hash" now'):
        attempt(target, replace(now, settings={"policy": '"hash"'}), "a")
    with pytest.raises(StateError, match="wrote 1 results of batch 7, and now has 2"):
        attempt(target, now, "a", "b")
    assert_readers_see(target, "a")


def test_a_result_too_large_names_the_topic(target: Target, now: Marker) -> None:
    large = pa.array([b"x" * 9_000_000], pa.binary())
    with Transaction(target, now) as transaction:
        transaction.write(pa.record_batch({"key": large.slice(0, 1), "value": large, "id": large.slice(0, 1)}))
        with pytest.raises(KafkaError, match=f"too large for topic {target.topic}: raise its max.message.bytes"):
            transaction.commit()
    assert_readers_see(target)


def test_a_topic_that_is_gone_is_named(target: Target, now: Marker) -> None:
    with pytest.raises(KafkaError, match="cannot write results to topic no-such-topic"):
        attempt(replace(target, topic="no-such-topic"), now, "a")


def test_options_that_no_transaction_allows(target: Target, now: Marker) -> None:
    def with_option(name: str, value: str) -> Target:
        return replace(target, options=(*target.options, (name, value)))

    with pytest.raises(KafkaError, match=r"raise its transaction\.max\.timeout\.ms"):
        attempt(with_option("transaction.timeout.ms", "1000000"), now, "a")
    with pytest.raises(KafkaError, match="idempotence"):
        attempt(with_option("enable.idempotence", "false"), now, "a")


def test_nothing_shows_the_options(target: Target) -> None:
    assert "bootstrap" not in repr(target)


def test_keys_and_values_may_be_missing(target: Target, now: Marker) -> None:
    empty = pa.array([None, b""], pa.binary())
    with Transaction(target, now) as transaction:
        transaction.write(pa.record_batch({"key": empty, "value": empty, "id": pa.array([b"1", b"2"], pa.binary())}))
        transaction.commit()

    def by_id(message: Any) -> str:
        return headers_of(message)["balajoin-id"]

    found = sorted(everything(_servers(target), target.topic), key=by_id)
    assert [(message.key(), message.value()) for message in found] == [(None, None), (b"", b"")]
