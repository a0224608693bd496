"""Signals in the batch that publishes them: routers tell a home where on the control topic they are, and it reads them.

All routers of a batch are done before its nodes begin. Spark hands the topic's records to the nodes too, but only in
the next batch: there they are repetitions. So build rows are pulled a batch sooner.
"""

import json
import time
from collections.abc import Iterator, Sequence
from functools import lru_cache

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import KafkaError as ClientError

from balajoin.control.encoding import read_signal
from balajoin.core.messages import ForeignRecordError, Signal, Stamp
from balajoin.errors import KafkaError
from balajoin.kafka.client_options import SILENT
from balajoin.kafka.producer import Place

ANNOUNCED = "announced"
"""The section of such a row; its block holds the places."""

Options = tuple[tuple[str, str], ...]

_PATIENCE_S = 30.0
_AT_ONCE = 1000


def announcement(places: Sequence[Place]) -> bytes:
    return json.dumps(places, separators=(",", ":")).encode()


def announced_places(block: bytes) -> list[Place]:
    return [(partition, offset) for partition, offset in json.loads(block)]


def announced_signals(options: Options, topic: str, places: Sequence[Place], stamp: Stamp) -> Iterator[Signal]:
    """Raises where one cannot be read: whether a batch takes it must not depend on chance."""
    for value in _read(options, topic, places) if places else ():
        try:
            sent, signal = read_signal(value.decode("utf-8", "replace"))
        except ForeignRecordError:
            sent = None
        if sent != stamp:
            hint = "See who deletes and creates it while the join runs"
            raise KafkaError(f"topic {topic} holds other records than were just written to it. {hint}")
        yield signal


def _read(options: Options, topic: str, places: Sequence[Place]) -> Iterator[bytes]:
    consumer = _consumer(options)
    wanted = set(places)
    first = {partition: min(o for p, o in wanted if p == partition) for partition, _ in wanted}
    deadline = time.monotonic() + _PATIENCE_S
    reason = f"{len(wanted)} records just written do not come in {_PATIENCE_S:.0f} s"
    consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in sorted(first.items())])
    try:
        while wanted and time.monotonic() < deadline:
            for message in consumer.consume(_AT_ONCE, timeout=0.1):
                error = message.error()
                place = message.partition(), message.offset()
                if error is None and place in wanted:
                    wanted.remove(place)
                    yield message.value() or b""
                # A group is only a name here, and what can be mended is tried again until then.
                elif error is not None and error.code() != ClientError.GROUP_AUTHORIZATION_FAILED:
                    reason = error.str()
    finally:
        consumer.unassign()
    if wanted:
        _consumer.cache_clear()
        raise KafkaError(f"cannot read topic {topic}: {reason}. Ask for the operations Describe and Read on it")


@lru_cache(maxsize=2)
def _consumer(options: Options) -> Consumer:
    """One a process: to connect takes longer than to read."""
    reading = {
        "fetch.wait.max.ms": "10",
        **dict(options),
        "group.id": "balajoin-signals",  # never joined
        "isolation.level": "read_uncommitted",  # or anybody's open transaction would hide what was just written
        "enable.auto.commit": False,
    }
    return Consumer(reading, logger=SILENT)
