"""`balajoin control tail`: the control and the replica topic, a line a record."""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from balajoin.blocks import decode
from balajoin.clients import librdkafka_options
from balajoin.control.records import (
    HEADER,
    ForeignRecordError,
    is_report,
    is_tick,
    read_part,
    read_report,
    read_signal,
    read_tick,
)
from balajoin.errors import BlockError, KafkaError
from balajoin.settings import Kafka
from balajoin.topics import partition_counts

_TIMEOUT_S = 10.0
_EPOCH = datetime.fromtimestamp(0, UTC)


def tail(kafka: Kafka, control: str, replicas: str, lines: int, follow: bool) -> Iterator[str]:
    """The last `lines` records of both topics together, oldest first; then, to `follow`, whatever comes."""
    partitions = partition_counts(kafka, (control, replicas))
    options = {**librdkafka_options(kafka), "group.id": "balajoin-control-tail", "enable.auto.commit": False}
    consumer = Consumer(options, logger=logging.getLogger("balajoin.librdkafka"))
    describe: dict[str, Callable[[Any], str]] = {control: describe_signal, replicas: describe_part}
    try:
        ends = _assign_last(consumer, partitions, lines)
        last = deque(_read(consumer, ends), maxlen=lines)
        yield from (_line(message, describe) for message in sorted(last, key=lambda message: message.timestamp()[1]))
        while follow:
            for message in consumer.consume(100, timeout=0.5):
                if message.error() is None:
                    yield _line(message, describe)
    except KafkaException as error:
        raise KafkaError(f"cannot read {control} and {replicas}: {error.args[0].str()}. Check ACLs") from None
    finally:
        consumer.close()


def _assign_last(consumer: Consumer, partitions: dict[str, int], lines: int) -> dict[tuple[str, int], int]:
    """Goes back far enough in every partition; returns where those end that have records to read."""
    starts, ends = [], {}
    for topic, count in partitions.items():
        for partition in range(count):
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_TIMEOUT_S)
            start = max(low, high - lines)
            starts.append(TopicPartition(topic, partition, start))
            if start < high:
                ends[topic, partition] = high
    consumer.assign(starts)
    return ends


def _read(consumer: Consumer, ends: dict[tuple[str, int], int]) -> Iterator[Any]:
    while ends:
        messages: list[Any] = consumer.consume(1000, timeout=0.5)
        for message in messages:
            if message.error() is not None:
                raise KafkaException(message.error())
            yield message
            at = message.topic(), message.partition()
            if message.offset() + 1 >= ends.get(at, 0):
                ends.pop(at, None)


def _line(message: Any, describe: dict[str, Callable[[Any], str]]) -> str:
    written = _EPOCH + timedelta(milliseconds=message.timestamp()[1])
    try:
        text = describe[message.topic()](message)
    except (ForeignRecordError, BlockError) as error:
        text = f"foreign  {message.topic()} {message.partition()}/{message.offset()}: {error}"
    return f"{written:%Y-%m-%dT%H:%M:%S.%f}"[:-3] + f"Z {text}"


def describe_signal(message: Any) -> str:
    text = (message.value() or b"").decode("utf-8", "replace")
    if is_tick(text):
        stamp, now_ms = read_tick(text)
        return f"tick     batch {stamp.batch}  to all nodes: {_EPOCH + timedelta(milliseconds=now_ms):%F %T}"
    stamp, signal = read_signal(text)
    until = _EPOCH + timedelta(microseconds=signal.until)
    marks = "".join(f" {mark}" for mark, is_set in (("fragment", signal.fragment), ("again", signal.again)) if is_set)
    key = signal.key.decode() or "?"
    return f"signal   batch {stamp.batch}  to node {signal.node}: key {key} ({signal.hash}) until {until:%F %T}{marks}"


def describe_part(message: Any) -> str:
    header = (dict(message.headers() or ()).get(HEADER) or b"").decode("utf-8", "replace")
    if is_report(header):
        stamp, report = read_report(header, message.value())
        rows = sum(table.num_rows for table in report.rows)
        return (
            f"report   batch {stamp.batch}  node {report.guest} to node {report.home}: {rows:,} build rows met a match"
        )
    part = read_part(header, message.value())
    rows = decode(part.block).num_rows if part.block else 0
    return (
        f"replicas batch {part.stamp.batch}  node {part.home} to node {part.node}: {rows:,} rows, {len(part.block):,} "
        f"bytes, {len(part.grants)} grants, {len(part.pulled)} pulls, part {part.part + 1} of {part.parts}"
    )
