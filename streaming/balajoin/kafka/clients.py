"""Builds librdkafka's producers, consumers and admin clients, with their defaults. No other module does.

The functions `shared_…` keep one client per process for each set of options: opening a client takes about 100 ms,
longer than most requests to it, and Spark creates the operators again for each batch. `cache_clear()` forgets the
clients after a failure.
"""

import logging
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient

OptionPairs = tuple[tuple[str, str], ...]
"""librdkafka's options as sorted pairs: they can be hashed and compared, and travel to Spark's workers."""

TRANSACTION_TIMEOUT = "transaction.timeout.ms"

# librdkafka would write its retries to stderr; the error that is raised has the cause.
_SILENT = logging.getLogger("balajoin.librdkafka")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False

_NO_LIMIT_OF_ITS_OWN = {"message.max.bytes": "1000000000"}  # the broker's limit decides, not the client's
_PUBLISHING = {"enable.idempotence": "true", "linger.ms": "5", "compression.type": "lz4", **_NO_LIMIT_OF_ITS_OWN}
_TRANSACTIONAL = {
    TRANSACTION_TIMEOUT: "600000",  # a transaction stays open while its node works on the batch
    "queue.buffering.max.kbytes": "65536",
    "queue.buffering.max.messages": "1000000",
    "linger.ms": "50",  # delays nothing: the end of the batch flushes at once
    "partitioner": "murmur2_random",  # places keys as Java's clients do, such as Spark's sink
    "reconnect.backoff.ms": "10",  # a producer opens in 20 ms; with the default of 100 in 60 ms
    "reconnect.backoff.max.ms": "1000",
    **_NO_LIMIT_OF_ITS_OWN,
}
_QUICK_FETCHES = {"fetch.wait.max.ms": "1"}


def pairs(options: Mapping[str, str]) -> OptionPairs:
    return tuple(sorted(options.items()))


def producer(options: Mapping[str, str]) -> Producer:
    return Producer(dict(options), logger=_SILENT)


@lru_cache(maxsize=4)
def shared_producer(options: OptionPairs) -> Producer:
    """An idempotent producer for records that operators publish themselves."""
    return producer({**_PUBLISHING, **dict(options)})


def transaction_timeout_s(options: Mapping[str, str]) -> float:
    return int({**_TRANSACTIONAL, **options}[TRANSACTION_TIMEOUT]) / 1000


def transactional_producer(options: Mapping[str, str], transactional_id: str, answer_s: float) -> Producer:
    """A record fails if the broker has not taken it within `answer_s`, or within the transaction's timeout."""
    patience_s = min(answer_s, transaction_timeout_s(options))
    patience = {"message.timeout.ms": str(int(patience_s * 1000))}
    return producer({**patience, **_TRANSACTIONAL, **options, "transactional.id": transactional_id})


def consumer(
    options: Mapping[str, str],
    *,
    group: str,
    uncommitted: bool = False,
    tells_ends: bool = False,
    quick: bool = False,
) -> Consumer:
    """A consumer of assigned partitions. `group` is only a name: the consumer joins no group and commits nothing.

    With `uncommitted` the consumer also reads records of open and aborted transactions. With `tells_ends` it also
    reports when it has reached a partition's end. With `quick` a fetch returns the records that are there and does
    not wait for more; an idle consumer that has partitions then asks the broker a thousand times a second.
    """
    reading: dict[str, Any] = {
        **(_QUICK_FETCHES if quick else {}),
        **options,
        "group.id": group,
        "isolation.level": "read_uncommitted" if uncommitted else "read_committed",
        "enable.partition.eof": tells_ends,
        "enable.auto.commit": False,
    }
    return Consumer(reading, logger=_SILENT)


@lru_cache(maxsize=4)
def shared_consumer(options: OptionPairs, group: str, uncommitted: bool = False, tells_ends: bool = False) -> Consumer:
    """A quick consumer for a few records that have just been written."""
    return consumer(dict(options), group=group, uncommitted=uncommitted, tells_ends=tells_ends, quick=True)


def admin(options: Mapping[str, str], on_error: Callable[[KafkaError], None] | None = None) -> AdminClient:
    """`on_error` gets the errors of the client's connections, whenever the client is polled."""
    arguments: dict[str, Any] = dict(options)
    if on_error is not None:
        arguments["error_cb"] = on_error
    return AdminClient(arguments, logger=_SILENT)


@lru_cache(maxsize=2)
def shared_admin(options: OptionPairs) -> AdminClient:
    return admin(dict(options))
