"""Publishes records from inside an operator. The broker acknowledges all of them before the operator's batch ends.

A repeated batch publishes again, so consumers of these topics see each record at least once.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, Producer

from balajoin.errors import KafkaError
from balajoin.kafka import clients
from balajoin.kafka.clients import OptionPairs

_FLUSH_SECONDS = 60
_FATAL: Any = ClientError  # it is an exception, but its type stubs do not say so
# CLUSTER_AUTHORIZATION_FAILED: without Write on any topic, a producer does not even get its id.
_REFUSALS = (ClientError.TOPIC_AUTHORIZATION_FAILED, ClientError.CLUSTER_AUTHORIZATION_FAILED)


ID_HEADER = "balajoin-id"
"""A header of results, dead letters and late rows. A record that is written again has the same id."""

Header = tuple[str, bytes | None]
PartitionOffset = tuple[int, int]
"""The position of a record in its topic."""


@dataclass(frozen=True)
class Record:
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]


def size(record: Record) -> int:
    """The size of the record's value in bytes, before compression."""
    return len(record.value or b"")


@dataclass(frozen=True)
class Publisher:
    """`options` are librdkafka's. A publisher holds no connection, because Spark sends it to the workers."""

    options: OptionPairs

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "Publisher":
        return cls(clients.pairs(options))

    def open(self) -> None:
        """Makes the first record wait less: a new producer asks the broker for its id only after half a second."""
        clients.shared_producer(self.options)

    def publish(
        self,
        topic: str,
        records: Iterable[Record],
        *,
        whole: bool = False,
        note_place: Callable[[Record, PartitionOffset], None] | None = None,
    ) -> None:
        """Publishes a record too large for the broker without its value and with a header that says so.

        With `whole` such a record fails. `note_place` gets each record's position, except for a record that the broker
        had already taken in an attempt whose answer was lost.
        """
        producer = clients.shared_producer(self.options)
        failures: list[ClientError] = []
        too_large: list[Record] = []

        def send(record: Record) -> None:
            def delivered(error: ClientError | None, message: Any) -> None:
                if error is None:
                    if note_place is not None and message.offset() >= 0:
                        note_place(record, (message.partition(), message.offset()))
                elif error.code() == ClientError.MSG_SIZE_TOO_LARGE and record.value and not whole:
                    too_large.append(record)
                else:
                    failures.append(error)

            while True:
                try:
                    producer.produce(
                        topic,
                        key=record.key,
                        value=record.value,
                        headers=list(record.headers),
                        on_delivery=delivered,
                    )
                    return
                except BufferError:
                    producer.poll(0.1)
                except KafkaException as refused:
                    delivered(refused.args[0], None)
                    return

        for record in records:
            send(record)
        unsent = _flushed(producer, failures)
        for record in too_large:
            omitted = ("balajoin-omitted-bytes", str(len(record.value or b"")).encode())
            send(Record(record.key, None, [*record.headers, omitted]))
        if too_large:
            unsent = _flushed(producer, failures)
        if failures or unsent:
            reason = failures[0].str() if failures else f"{unsent} records not acknowledged in {_FLUSH_SECONDS} s"
            hint = "Create it with `balajoin topics`, and check its ACLs"
            if failures and failures[0].code() == ClientError.MSG_SIZE_TOO_LARGE:
                hint = "Raise its max.message.bytes above the largest record of the build topic"
            elif failures and failures[0].code() in _REFUSALS:
                hint = "Ask for the operations Describe and Write on it"
            clients.shared_producer.cache_clear()  # after a fatal error a producer sends nothing any more
            raise KafkaError(f"cannot write to topic {topic}: {reason}. {hint}")

    def __repr__(self) -> str:
        return "Publisher(…)"


def _flushed(producer: Producer, failures: list[ClientError]) -> int:
    """Returns how many records were not sent. After a fatal error the next call, here `flush`, raises it."""
    try:
        return producer.flush(_FLUSH_SECONDS)
    except _FATAL as fatal:
        failures.insert(0, fatal)
        return 0
