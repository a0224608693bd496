"""Records in, records out: what tests on a real broker share."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

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
    assert producer.flush(DRAINED_WITHIN_S) == 0
    assert not failures, failures[0]


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
                else:  # the end tells more than the last message: what ends a transaction has an offset too
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    if message.offset() >= wanted.get(message.partition(), 0):
                        wanted.pop(message.partition(), None)
        assert not wanted, f"{topic} did not give all its records"
        return messages
    finally:
        consumer.close()


def headers_of(message: Any) -> dict[str, str]:
    return {name: value.decode() for name, value in message.headers() or []}
