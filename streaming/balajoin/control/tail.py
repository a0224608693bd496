"""`balajoin control tail`: shows the control and the replica topic, one line for each record."""

from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import KafkaError as ClientError

from balajoin.config.models import Kafka
from balajoin.control.encoding import HEADER, read_control, read_replica
from balajoin.core.blocks import decode
from balajoin.core.hashing import shown
from balajoin.core.messages import ForeignRecordError, Report, Tick
from balajoin.errors import BlockError, KafkaError
from balajoin.kafka import clients
from balajoin.kafka.client_options import librdkafka_options
from balajoin.kafka.topics import partition_counts

_TIMEOUT_S = 10.0
_EPOCH = datetime.fromtimestamp(0, UTC)


def tail(kafka: Kafka, control: str, replicas: str, lines: int, follow: bool) -> Iterator[str]:
    """The last `lines` records of both topics together, oldest first; with `follow`, then each new record."""
    partitions = partition_counts(kafka, (control, replicas))
    consumer = clients.consumer(librdkafka_options(kafka), group="balajoin-control-tail", tells_ends=True)
    describe: dict[str, Callable[[Any], str]] = {control: describe_signal, replicas: describe_part}
    try:
        ends = _assign_last(consumer, partitions, lines)
        last = deque(_read(consumer, ends), maxlen=lines)
        yield from (_line(message, describe) for message in sorted(last, key=lambda message: message.timestamp()[1]))
        while follow:
            yield from (_line(message, describe) for message in _polled(consumer, 100) if message.error() is None)
    except KafkaException as error:
        raise KafkaError(
            f"cannot read {control} and {replicas}: {error.args[0].str()}. Check the broker and the ACLs"
        ) from None
    finally:
        consumer.close()


def _assign_last(consumer: Consumer, partitions: dict[str, int], lines: int) -> dict[tuple[str, int], int]:
    """Goes back far enough in every partition. Returns the end of each partition that has records to read."""
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
        for message in _polled(consumer, 1000):
            at = message.topic(), message.partition()
            if message.error() is None:
                yield message
            if message.error() or message.offset() + 1 >= ends.get(at, 0):
                ends.pop(at, None)


def _polled(consumer: Consumer, most: int) -> Iterator[Any]:
    """Records, and notices that a partition's end was reached, because its last offset need not be a record."""
    messages: list[Any] = consumer.consume(most, timeout=0.5)
    for message in messages:
        error = message.error()
        if error is None or error.code() == ClientError._PARTITION_EOF:
            yield message
        elif error.code() != ClientError.GROUP_AUTHORIZATION_FAILED:  # the group is only a name here
            raise KafkaException(error)


def _line(message: Any, describe: dict[str, Callable[[Any], str]]) -> str:
    try:
        text = describe[message.topic()](message)
    except (ForeignRecordError, BlockError) as error:
        text = f"foreign  {message.topic()} {message.partition()}/{message.offset()}: {error}"
    return f"{_moment(1000 * message.timestamp()[1], 'milliseconds')} {_shown(text)}"


def _moment(since_epoch_us: int, precision: str) -> str:
    """Shows a time. Anyone may have written it, so it may be outside every calendar."""
    try:
        moment = _EPOCH + timedelta(microseconds=since_epoch_us)
    except OverflowError:
        return f"{since_epoch_us} us"
    return moment.isoformat(timespec=precision).replace("+00:00", "Z")


def _shown(text: str) -> str:
    """Replaces control characters: anyone may have written them, and terminals obey them."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def describe_signal(message: Any) -> str:
    text = (message.value() or b"").decode("utf-8", "replace")
    stamp, signal = read_control(text)
    if isinstance(signal, Tick):
        return f"tick     batch {stamp.batch}  to all nodes: {_moment(1000 * signal.now_ms, 'seconds')}"
    until = _moment(signal.until, "seconds")
    marks = "".join(f" {mark}" for mark, is_set in (("fragment", signal.fragment), ("again", signal.again)) if is_set)
    key = f"{signal.key.decode() or '?'} ({shown(signal.hash)})"
    return f"signal   batch {stamp.batch}  to node {signal.node}: key {key} until {until}{marks}"


def describe_part(message: Any) -> str:
    header = (dict(message.headers() or ()).get(HEADER) or b"").decode("utf-8", "replace")
    stamp, part = read_replica(header, message.value())
    if isinstance(part, Report):
        rows = sum(table.num_rows for table in part.rows)
        return f"report   batch {stamp.batch}  node {part.guest} to node {part.home}: {rows:,} build rows met a match"
    rows = decode(part.block).num_rows if part.block else 0
    return (
        f"replicas batch {part.stamp.batch}  node {part.home} to node {part.node}: {rows:,} rows, {len(part.block):,} "
        f"bytes, {len(part.grants)} grants, {len(part.pulled)} pulls, part {part.part + 1} of {part.parts}"
    )
