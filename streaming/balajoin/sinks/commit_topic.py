"""Reads markers back. Node j writes to partition j of the topic, so its last marker is near the partition's end."""

import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from balajoin.core.spec import Target
from balajoin.errors import KafkaError
from balajoin.kafka import clients
from balajoin.kafka.clients import OptionPairs
from balajoin.sinks.marker import Marker, key_of

_EARLIEST, _LATEST = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
_TIMEOUT_S = 30.0
_PATIENCE_S = 60.0
_RETRY_S = 0.1
_FINAL = (
    ClientError.TOPIC_AUTHORIZATION_FAILED,
    ClientError.GROUP_AUTHORIZATION_FAILED,
    ClientError.UNKNOWN_TOPIC_OR_PART,
    ClientError._UNKNOWN_TOPIC,
    ClientError._UNKNOWN_PARTITION,
    ClientError._AUTHENTICATION,
)
# The last transaction leaves two records: the marker, and the one that ends it. Aborted transactions leave as many.
_FIRST_LOOK = 8
_LOOK_FURTHER = 16


def last_marker(target: Target, query: str, node: int) -> Marker | None:
    """The last marker of this query and node. Waits until every transaction that is open on the partition has ended."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return _Reader(target.options).last(target.commit_topic, query, node)
        except KafkaException as error:
            cause = error.args[0]
            if cause.code() in _FINAL or time.monotonic() > deadline:
                hint = "Create it with `balajoin topics`, and check its ACLs"
                raise KafkaError(f"cannot read topic {target.commit_topic}: {cause.str()}. {hint}") from None
            # A partition that has just been created or moved may not be found yet. After a broker has come back, a
            # client may keep the leader's old epoch for ever. A new client does not know that epoch.
            clients.shared_consumer.cache_clear()
            clients.shared_admin.cache_clear()
            time.sleep(_RETRY_S)


class _Reader:
    def __init__(self, options: OptionPairs) -> None:
        self._consumer = clients.shared_consumer(options, group="balajoin-commits", tells_ends=True)
        self._admin = clients.shared_admin(options)

    def last(self, topic: str, query: str, node: int) -> Marker | None:
        # The end includes open transactions; the end that the consumer itself reports does not.
        begin, end = (self._offset(topic, node, spec) for spec in (_EARLIEST, _LATEST))
        look = _FIRST_LOOK
        while True:
            start = max(begin, end - look)
            committed = self._read(topic, node, start, end)
            ours = [message.value() for message in committed if message.key() == key_of(query, node)]
            if ours:
                return Marker.from_json(ours[-1])
            if start == begin:
                return None
            look *= _LOOK_FURTHER

    def _offset(self, topic: str, node: int, spec: Any) -> int:
        partition = TopicPartition(topic, node)
        future = self._admin.list_offsets({partition: spec}, request_timeout=_TIMEOUT_S)[partition]
        return int(future.result(timeout=_TIMEOUT_S).offset)

    def _read(self, topic: str, node: int, start: int, end: int) -> Iterator[Any]:
        """Committed records of [start, end). Records that end a transaction are hidden, so EOF tells the position."""
        self._consumer.assign([TopicPartition(topic, node, start)])
        deadline = time.monotonic() + _TIMEOUT_S
        at = start
        try:
            while at < end:
                message = self._consumer.poll(max(0.0, deadline - time.monotonic()))
                if message is None:
                    raise KafkaError(
                        f"a transaction on partition {node} of topic {topic} stays open, perhaps of a killed service "
                        "with another checkpoint: start again when it has timed out"
                    )
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == ClientError._PARTITION_EOF:
                    at = message.offset() or 0
                elif error.code() != ClientError.GROUP_AUTHORIZATION_FAILED:  # the group is only a name here
                    raise KafkaException(error)
        finally:
            self._consumer.unassign()
