"""Attempts to write a node's batch on a real broker: however they end, readers see each row once."""

import os
import signal
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from balajoin.config.models import Kafka
from balajoin.core.spec import Target
from balajoin.embedded import EmbeddedKafka
from balajoin.errors import KafkaError, StateError
from balajoin.kafka.topics import Shape, create_missing
from balajoin.sinks.commit_topic import last_marker
from balajoin.sinks.marker import Marker
from balajoin.sinks.transaction import Transaction, take_over
from balajoin.spark.jars import default_cache, fetch
from kafka_data import await_decided, everything, headers_of, ids_by_both_clients

pytestmark = pytest.mark.broker

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
        return write_and_commit(transaction, *ids)


def write_and_commit(transaction: Transaction, *ids: str) -> int:
    transaction.write(records(*ids))
    return transaction.commit()


def servers(target: Target) -> str:
    return dict(target.options)["bootstrap.servers"]


def assert_readers_see(target: Target, *ids: str) -> None:
    assert ids_by_both_clients(servers(target), target.topic) == sorted(ids)


def test_rows_and_their_marker_arrive_together(target: Target, now: Marker) -> None:
    with Transaction(target, now) as transaction:
        transaction.write(records("a", "b"))
        transaction.write(records("c"))
        assert transaction.commit() == 3
    assert_readers_see(target, "a", "b", "c")
    assert last_marker(target, now.query, now.node) == replace(now, rows=3)
    assert last_marker(target, now.query, 0) is None


def test_an_id_that_is_taken_over_beforehand_is_used_for_what_follows(target: Target, now: Marker) -> None:
    with Transaction(target, now) as transaction:
        transaction.expect_rows()
        assert write_and_commit(transaction, "a") == 1
    with Transaction(target, now) as repeated:
        repeated.expect_rows()
        assert write_and_commit(repeated, "a") == 0
    assert_readers_see(target, "a")


def test_rows_that_are_expected_and_do_not_come_leave_nothing(target: Target, now: Marker) -> None:
    with Transaction(target, now) as transaction:
        transaction.expect_rows()
        assert transaction.commit() == 0
    assert last_marker(target, now.query, now.node) is None
    assert attempt(target, now, "a") == 1
    assert_readers_see(target, "a")


def test_rows_that_an_earlier_attempt_wrote_are_not_forgotten_when_none_are_left(target: Target, now: Marker) -> None:
    assert attempt(target, now, "a") == 1
    with Transaction(target, now) as transaction:
        transaction.expect_rows()
        with pytest.raises(StateError, match="wrote 1 results of batch 7, and now has 0"):
            transaction.commit()
    assert_readers_see(target, "a")


def test_the_marker_waits_for_room_in_a_full_queue(target: Target, now: Marker) -> None:
    narrow = replace(target, options=(*target.options, ("queue.buffering.max.messages", "2")))
    assert attempt(narrow, now, "a", "b") == 2
    assert_readers_see(target, "a", "b")


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
        with pytest.raises(StateError, match="another process writes the results of node 1"):
            write_and_commit(zombie, "b")
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
    assert last_marker(target, now.query, now.node) == replace(now, rows=1)
    assert last_marker(target, other.query, now.node) == replace(other, batch=19, rows=1)


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


def test_a_result_too_large_is_named_before_the_time_of_the_others_is_over(
    target: Target, now: Marker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other results are not sent any more. A commit that waited for them would fail with a vague timeout.

    The broker may also refuse the result so soon that writing the others fails.
    """
    monkeypatch.setattr("balajoin.sinks.transaction._ANSWER_S", 10.0)
    patient = replace(target, options=(*target.options, ("message.timeout.ms", "600000")))
    small = [b"%d" % n for n in range(3000)]
    values = pa.array([*small, b"x" * 9_000_000, *small], pa.binary())
    keys = pa.array([b"k"] * len(values), pa.binary())
    explained = pytest.raises(KafkaError, match=f"too large for topic {target.topic}: raise its max.message.bytes")
    with Transaction(patient, now) as transaction, explained:
        transaction.write(pa.record_batch({"key": keys, "value": values, "id": keys}))
        transaction.commit()
    assert_readers_see(target)


def test_a_topic_that_is_gone_is_named(target: Target, now: Marker) -> None:
    soon = ("topic.metadata.propagation.max.ms", "500")
    with pytest.raises(KafkaError, match="cannot write results to topic no-such-topic"):
        attempt(replace(target, topic="no-such-topic", options=(*target.options, soon)), now, "a")


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

    found = sorted(everything(servers(target), target.topic), key=by_id)
    assert [(message.key(), message.value()) for message in found] == [(None, None), (b"", b"")]


@pytest.fixture(scope="module")
def mortal_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """A broker that tests may kill. It looks for expired transactions several times a second."""
    soon = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
    jars = fetch("broker", default_cache(os.environ))
    with EmbeddedKafka(tmp_path_factory.mktemp("mortal"), jars, properties=soon) as running:
        yield running


@pytest.fixture
def mortal_target(mortal_broker: EmbeddedKafka) -> Target:
    kafka = Kafka(bootstrap_servers=mortal_broker.bootstrap_servers)
    out, commits = (f"{name}-{uuid.uuid4().hex[:12]}" for name in ("out", "commits"))
    create_missing(kafka, {out: Shape(3), commits: Shape(NODES)}, replication=1)
    return Target(out, commits, (("bootstrap.servers", kafka.bootstrap_servers),))


def test_a_transaction_that_takes_too_long_is_aborted_and_says_so(mortal_target: Target, now: Marker) -> None:
    hurried = replace(mortal_target, options=(*mortal_target.options, ("transaction.timeout.ms", "1000")))
    with Transaction(hurried, now) as slow:
        slow.write(records("a"))
        slow._producer.flush()
        await_decided(servers(mortal_target), mortal_target.topic)
        with pytest.raises(KafkaError, match=r"longer for a batch than a transaction may last \(1 s\)"):
            slow.commit()
    assert attempt(mortal_target, now, "a") == 1
    assert_readers_see(mortal_target, "a")


def test_a_broker_that_dies_in_the_middle(mortal_broker: EmbeddedKafka, mortal_target: Target, now: Marker) -> None:
    def whole_batch(around: Callable[[int], None]) -> None:
        with Transaction(mortal_target, now) as transaction:
            for number in range(3):
                around(number)
                transaction.write(records(*(f"{number}-{row}" for row in range(100))))
            around(3)
            transaction.commit()

    def cut_power(number: int) -> None:
        if number in (1, 3):
            mortal_broker.kill()
            mortal_broker.start()

    with suppress(KafkaError, StateError):
        whole_batch(cut_power)
    whole_batch(lambda _: None)
    assert_readers_see(mortal_target, *(f"{number}-{row}" for number in range(3) for row in range(100)))


def test_an_unanswered_commit_is_found_out_by_the_next_attempt(
    mortal_broker: EmbeddedKafka, mortal_target: Target, now: Marker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("balajoin.sinks.transaction._ANSWER_S", 1.0)
    with Transaction(mortal_target, now) as unanswered:
        unanswered.write(records("a"))
        unanswered._producer.flush()
        assert mortal_broker.pid is not None
        os.kill(mortal_broker.pid, signal.SIGSTOP)
        try:
            with pytest.raises(KafkaError, match="cannot write results"):
                unanswered.commit()
        finally:
            os.kill(mortal_broker.pid, signal.SIGCONT)
    monkeypatch.undo()
    attempt(mortal_target, now, "a")
    assert_readers_see(mortal_target, "a")
