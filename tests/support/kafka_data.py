"""Sends and reads records, for tests on a real broker."""

import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import kafka
from confluent_kafka import Consumer, IsolationLevel, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from kafka import KafkaConsumer

DRAINED_WITHIN_S = 60


@dataclass(frozen=True)
class Sent:
    key: bytes | None
    value: bytes | None
    time_ms: int
    partition: int = 0
    headers: list[tuple[str, bytes]] = field(default_factory=list)


def send(bootstrap: str, topic: str, records: Iterable[Sent]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 20_000_000})
    failures = _produce(producer, topic, records)
    assert producer.flush(DRAINED_WITHIN_S) == 0
    assert not failures, failures[0]


def begin_transaction(bootstrap: str, topic: str, records: Iterable[Sent]) -> Producer:
    """Sends the records in a transaction that the caller commits or aborts."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(DRAINED_WITHIN_S)
    producer.begin_transaction()
    failures = _produce(producer, topic, records)
    assert producer.flush(DRAINED_WITHIN_S) == 0
    assert not failures, failures[0]
    return producer


def _produce(producer: Producer, topic: str, records: Iterable[Sent]) -> list[Any]:
    """Queues the records. After a flush, the returned list holds the failures."""
    failures: list[Any] = []
    for record in records:
        producer.produce(
            topic,
            record.value,
            record.key,
            record.partition,
            timestamp=record.time_ms,
            headers=record.headers,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
        producer.poll(0)
    return failures


def everything(bootstrap: str, topic: str) -> list[Any]:
    """All committed messages that are in the topic now, as confluent-kafka gives them."""
    options = {"group.id": "reader", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": bootstrap, **options})
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=10) for p in partitions}
        consumer.assign([TopicPartition(topic, p, low) for p, (low, _) in ends.items()])
        wanted = {p: high for p, (low, high) in ends.items() if high > low}
        messages = []
        deadline = time.monotonic() + DRAINED_WITHIN_S
        while wanted and time.monotonic() < deadline:
            for message in consumer.consume(10_000, timeout=0.5):
                error = message.error()
                if error is None:
                    messages.append(message)
                else:  # wait for the end, not for the last message: transaction markers have offsets too
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    if message.offset() >= wanted.get(message.partition(), 0):
                        wanted.pop(message.partition(), None)
        assert not wanted, f"{topic} did not deliver all its records"
        return messages
    finally:
        consumer.close()


def everything_by_kafka_python(bootstrap: str, topic: str) -> list[Any]:
    """The same, read with kafka-python."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed", enable_auto_commit=False)
    try:
        partitions = [kafka.TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic)]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        messages: list[Any] = []
        deadline = time.monotonic() + DRAINED_WITHIN_S
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            assert time.monotonic() < deadline, f"{topic} did not deliver all its records"
            for found in consumer.poll(timeout_ms=200).values():
                messages.extend(found)
        return messages
    finally:
        consumer.close()


def await_decided(bootstrap: str, topic: str) -> None:
    """Waits until no transaction is open and readers see all committed ones."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    count = len(admin.list_topics(topic, timeout=10).topics[topic].partitions)
    wanted = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in range(count)}

    def ends(isolation: IsolationLevel) -> list[int]:
        return [future.result().offset for future in admin.list_offsets(wanted, isolation_level=isolation).values()]

    deadline = time.monotonic() + DRAINED_WITHIN_S
    while ends(IsolationLevel.READ_COMMITTED) != ends(IsolationLevel.READ_UNCOMMITTED):
        assert time.monotonic() < deadline, f"a transaction on {topic} stays open"
        time.sleep(0.05)


def ids_by_both_clients(bootstrap: str, topic: str) -> list[str]:
    """The sorted ids of all committed results. Asserts that both clients read the same ids."""
    await_decided(bootstrap, topic)
    ids = sorted(headers_of(message)["balajoin-id"] for message in everything(bootstrap, topic))
    others = everything_by_kafka_python(bootstrap, topic)
    assert sorted(dict(message.headers)["balajoin-id"].decode() for message in others) == ids
    return ids


def headers_of(message: Any) -> dict[str, str]:
    return {name: value.decode() for name, value in message.headers() or []}
