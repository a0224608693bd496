"""Delivers signals within the batch that publishes them: routers tell a home node where on the control topic they are.

All routers of a batch are done before its nodes begin. Spark hands the topic's records to the nodes only in the next
batch, where they are repetitions. So announcements let a home ship build rows one batch sooner.
"""

import json
import time
from collections.abc import Iterator, Sequence

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import TopicPartition

from balajoin.control.encoding import read_signal
from balajoin.core.messages import ForeignRecordError, Signal, Stamp
from balajoin.errors import KafkaError
from balajoin.kafka import clients
from balajoin.kafka.clients import OptionPairs
from balajoin.kafka.producer import PartitionOffset

ANNOUNCED = "announced"
"""The section of a row that tells a home where its signals are; the row's block holds the places."""

_PATIENCE_S = 30.0
_AT_ONCE = 1000


def announcement(places: Sequence[PartitionOffset]) -> bytes:
    return json.dumps(places, separators=(",", ":")).encode()


def announced_places(block: bytes) -> list[PartitionOffset]:
    return [(partition, offset) for partition, offset in json.loads(block)]


def announced_signals(
    options: OptionPairs, topic: str, places: Sequence[PartitionOffset], stamp: Stamp
) -> Iterator[Signal]:
    """Raises if a signal cannot be read: whether a batch takes it must not depend on chance."""
    for value in _read(options, topic, places) if places else ():
        try:
            sent, signal = read_signal(value.decode("utf-8", "replace"))
        except ForeignRecordError:
            sent = None
        if sent != stamp:
            hint = "Find out who deletes and creates the topic while the join runs, and stop that"
            raise KafkaError(f"topic {topic} holds other records than were just written to it. {hint}")
        yield signal


def _read(options: OptionPairs, topic: str, places: Sequence[PartitionOffset]) -> Iterator[bytes]:
    # Any open transaction on the topic would hide the new signals from a reader of committed records.
    consumer = clients.shared_consumer(options, group="balajoin-signals", uncommitted=True)
    wanted = set(places)
    first = {partition: min(o for p, o in wanted if p == partition) for partition, _ in wanted}
    deadline = time.monotonic() + _PATIENCE_S
    reason = f"{len(wanted)} records just written did not arrive within {_PATIENCE_S:.0f} s"
    consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in sorted(first.items())])
    try:
        while wanted and time.monotonic() < deadline:
            for message in consumer.consume(_AT_ONCE, timeout=0.1):
                error = message.error()
                place = message.partition(), message.offset()
                if error is None and place in wanted:
                    wanted.remove(place)
                    yield message.value() or b""
                # The group is only a name here. The client retries other errors until the deadline, if it can.
                elif error is not None and error.code() != ClientError.GROUP_AUTHORIZATION_FAILED:
                    reason = error.str()
    finally:
        consumer.unassign()
    if wanted:
        clients.shared_consumer.cache_clear()
        raise KafkaError(f"cannot read topic {topic}: {reason}. Ask for the operations Describe and Read on it")
