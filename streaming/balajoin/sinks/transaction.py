"""One attempt to write a node's results of one batch: all of them and their marker, or nothing.

Kafka lets one producer at a time use a transactional id. The next producer that opens the id ends the open transaction
of the one before, which can then write no more. So a marker read after taking over the id stays the last one until we
write.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, Producer

from balajoin.core.spec import Target
from balajoin.errors import BalaJoinError, KafkaError, StateError
from balajoin.kafka import clients
from balajoin.kafka.producer import ID_HEADER
from balajoin.sinks.commit_topic import last_marker
from balajoin.sinks.marker import Marker

ID_PREFIX = "balajoin-"

_ANSWER_S = 120.0
_ABORT_S = 5.0
_LOOK_S = 0.2
_PAUSE_S = 0.02
_TAKEN_OVER = (
    ClientError._FENCED,
    ClientError.INVALID_PRODUCER_EPOCH,
    ClientError.PRODUCER_FENCED,
    ClientError.INVALID_PRODUCER_ID_MAPPING,
    ClientError.INVALID_TXN_STATE,
)
_ASK_FOR_THE_CAUSE = (ClientError._FATAL, ClientError._STATE)


def take_over(target: Target, query: str, node: int) -> Producer:
    """After this, no earlier producer can commit anything for this node."""
    with _explained(target, query, node):
        producer = clients.transactional_producer(dict(target.options), _transactional_id(query, node), _ANSWER_S)
        # Two requests: the first answer replaces its own connection, and librdkafka would then look for the
        # transaction's coordinator only every 500 ms.
        for topic in (target.topic, target.commit_topic):
            producer.list_topics(topic, timeout=_ANSWER_S)
        _ask(producer.init_transactions, _ANSWER_S)
        return producer


class Transaction:
    """`now` holds query, node, batch and settings. No producer is opened before a row is written or expected."""

    def __init__(self, target: Target, now: Marker) -> None:
        self._target = target
        self._now = now
        self._rows = 0
        self._producer: Producer | None = None
        self._earlier: Marker | None = None
        self._taking: Future[tuple[Producer, Marker | None]] | None = None
        self._began = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Aborts what was not committed: nobody ever sees it, but readers wait until the transaction has ended."""
        if self._taking is not None:
            wait([self._taking])
        if self._producer is not None:
            with suppress(KafkaException):
                self._producer.abort_transaction(_ABORT_S)

    def expect_rows(self) -> None:
        """Takes the id over in another thread: that waits for 35 ms, in which the caller makes the rows."""
        helper = ThreadPoolExecutor(1, "take-over")
        self._taking = helper.submit(self._take_over)
        helper.shutdown(wait=False)

    def write(self, records: pa.RecordBatch) -> None:
        """`records` has the binary columns key and value, and id if each record is to have it as a header."""
        if not self._rows:
            self._begin()
        self._rows += records.num_rows
        if self._producer is not None:
            with self._explained():
                _produce(self._producer, self._target.topic, records)

    def commit(self) -> int:
        """Returns the number of rows written: 0 if an earlier attempt has already committed them.

        Without rows too, a marker that was read is looked at: an attempt that had rows must not be forgotten.
        """
        if not self._rows and self._taking is not None:
            self._note_earlier(self._taking.result()[1])
        if self._earlier is not None:
            self._earlier.require_rows(self._rows)
        if self._producer is None:
            return 0
        marker = replace(self._now, rows=self._rows)
        with self._explained():
            produce = partial(self._producer.produce, self._target.commit_topic)
            _patiently(self._producer, partial(produce, marker.to_json(), marker.key, marker.node))
            _commit(self._producer)
        self._producer = None
        return self._rows

    def _begin(self) -> None:
        producer, last = self._take_over() if self._taking is None else self._taking.result()
        self._note_earlier(last)
        if self._earlier is not None:
            return
        self._began = time.monotonic()
        producer.begin_transaction()
        self._producer = producer

    def _note_earlier(self, last: Marker | None) -> None:
        if last is not None and last.is_repeated_by(self._now):
            self._earlier = last

    def _take_over(self) -> tuple[Producer, Marker | None]:
        """Opens the producer, then reads the last marker. In the other order another task could write in between."""
        query, node = self._now.query, self._now.node
        return take_over(self._target, query, node), last_marker(self._target, query, node)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        with _explained(self._target, self._now.query, self._now.node, self._began):
            try:
                yield
            except KafkaException as error:
                if self._producer is not None and error.args[0].code() in _ASK_FOR_THE_CAUSE:
                    self._producer.commit_transaction(_ANSWER_S)  # must fail, and its error names the cause
                raise


def _produce(producer: Producer, topic: str, records: pa.RecordBatch) -> None:
    """A header more than doubles the cost of a record: 2.45 µs of CPU instead of 0.83 (librdkafka 2.16).

    Even `headers=None` makes it half as long again.
    """
    keys, values = (records.column(name).to_numpy(zero_copy_only=False) for name in ("key", "value"))
    ids = records.column("id").to_numpy(zero_copy_only=False) if "id" in records.schema.names else None
    for row, (key, value) in enumerate(zip(keys, values, strict=True)):
        headers = None if ids is None else [(ID_HEADER, ids[row])]
        try:
            if headers is None:
                producer.produce(topic, value, key)
            else:
                producer.produce(topic, value, key, headers=headers)
        except BufferError:
            _patiently(producer, partial(producer.produce, topic, value, key, headers=headers))
    producer.poll(0)


def _patiently(producer: Producer, produce: Callable[[], None]) -> None:
    """Calls `produce` until the producer's queue has room for the record."""
    while True:
        try:
            return produce()
        except BufferError:
            producer.poll(0.1)


def _commit(producer: Producer) -> None:
    """If the broker never answers, the next attempt finds out what it did.

    Asks often, because a running commit waits for all records and notices a refused record only when it is called
    again. After one refusal librdkafka does not send the other records, so the commit would wait until they time out.
    """
    _ask(producer.commit_transaction, _LOOK_S)


def _ask(call: Callable[[float], None], answered_within_s: float) -> None:
    """Asks again if the broker does not answer in time, or cannot yet, as after it was started."""
    deadline = time.monotonic() + _ANSWER_S
    while True:
        try:
            return call(answered_within_s)
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_S)


@contextmanager
def _explained(target: Target, query: str, node: int, began: float | None = None) -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        raise _explanation(error.args[0], target, query, node, began) from None


def _explanation(error: Any, target: Target, query: str, node: int, began: float | None) -> BalaJoinError:
    code, reason = error.code(), error.str()
    timeout_s = clients.transaction_timeout_s(dict(target.options))
    if code in _TAKEN_OVER:
        if began is not None and time.monotonic() - began >= timeout_s:
            return KafkaError(
                f"node {node} took longer for a batch than a transaction may last ({timeout_s:g} s): raise "
                f'"{clients.TRANSACTION_TIMEOUT}" under [kafka.librdkafka], or lower join.max_rows_per_batch'
            )
        return StateError(
            f"another process writes the results of node {node} for the same checkpoint: stop it, or give it "
            "a checkpoint of its own"
        )
    if code == ClientError.INVALID_TRANSACTION_TIMEOUT:
        return KafkaError(
            f"the broker allows no transactions of {timeout_s:g} s: raise its transaction.max.timeout.ms, or lower "
            f'"{clients.TRANSACTION_TIMEOUT}" under [kafka.librdkafka]'
        )
    if code == ClientError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        return KafkaError(
            f"Kafka denies the transactional id {_transactional_id(query, node)}: allow Write and Describe on "
            f'transactional ids with prefix {ID_PREFIX}, or set output.delivery = "at-least-once"'
        )
    if code == ClientError.MSG_SIZE_TOO_LARGE:
        return KafkaError(f"a result is too large for topic {target.topic}: raise its max.message.bytes")
    hint = f"Check that topic {target.commit_topic} exists too, and the ACLs of both"
    return KafkaError(f"cannot write results to topic {target.topic}: {reason}. {hint}")


def _transactional_id(query: str, node: int) -> str:
    return f"{ID_PREFIX}{query}-{node}"
