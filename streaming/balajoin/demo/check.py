"""Compares the output with the expected pairs, which follow from the definition of the join and the rows sent.

This module uses none of the join's own code: an error there would hide itself.
"""

import json
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, KafkaException, TopicPartition

from balajoin.embedded.workload import Event
from balajoin.kafka import clients

_GROUP = "balajoin-demo"
_AT_ONCE = 5_000
_WAIT_S = 0.2


class Pair(NamedTuple):
    key: str
    probe_value: str
    build_value: str


class OutputRecord(NamedTuple):
    """A record of the output topic."""

    id: str
    pair: Pair


@dataclass(frozen=True)
class Verdict:
    expected: int
    found: int
    missing: int
    unexpected: int
    repeats: int
    """Pairs that came again under the same id. They are allowed: a batch may run twice."""

    example: str = ""
    """Describes the first wrong pair."""

    @property
    def good(self) -> bool:
        return not self.missing and not self.unexpected


def expected_pairs(probe: Iterable[Event], build: Iterable[Event], before_ms: int, after_ms: int) -> set[Pair]:
    """Returns all pairs of equal keys whose build row is at most `before_ms` older and at most `after_ms` newer."""
    build_by_key: dict[bytes, list[tuple[int, str]]] = defaultdict(list)
    for event in build:
        build_by_key[event.key].append((event.time_ms, event.value.decode()))
    for candidates in build_by_key.values():
        candidates.sort()
    pairs: set[Pair] = set()
    for event in probe:
        candidates = build_by_key.get(event.key, [])
        first = bisect_left(candidates, event.time_ms - before_ms, key=_time)
        end = bisect_right(candidates, event.time_ms + after_ms, key=_time)
        key, value = event.key.decode(), event.value.decode()
        pairs.update(Pair(key, value, build_value) for _, build_value in candidates[first:end])
    return pairs


def compare(expected: set[Pair], found: Iterable[OutputRecord]) -> Verdict:
    id_of: dict[Pair, str] = {}
    count = unexpected = repeats = 0
    example = ""
    for id_, pair in found:
        count += 1
        if pair not in expected:
            unexpected += 1
            example = example or f"{id_} is {pair}, which is no pair of the join"
        elif pair not in id_of:
            id_of[pair] = id_
        elif id_of[pair] == id_:
            repeats += 1
        else:
            unexpected += 1
            example = example or f"{pair} has two ids, {id_of[pair]} and {id_}"
    if shared := len(id_of) - len(set(id_of.values())):
        unexpected += shared
        example = example or "different pairs have the same id"
    missing = len(expected) - len(id_of)
    if missing:
        example = example or f"{min(expected - id_of.keys())} is missing"
    return Verdict(len(expected), count, missing, unexpected, repeats, example)


def read_back(
    client_options: Mapping[str, str], topic: str, partitions: int, check: Callable[[], None]
) -> Iterator[OutputRecord]:
    """Yields all records of a topic that nobody writes to any more. `check` may raise to end it."""
    consumer = clients.consumer(client_options, group=_GROUP, tells_ends=True)
    try:
        ends = _ends(client_options, topic, partitions)
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in ends])
        while ends:
            for message in consumer.consume(_AT_ONCE, timeout=_WAIT_S):
                error = message.error()
                if error is None:
                    yield parsed(message)
                elif error.code() == error._PARTITION_EOF:
                    partition, offset = message.partition() or 0, message.offset() or 0
                    if offset >= ends.get(partition, 0):
                        ends.pop(partition, None)
                else:
                    raise KafkaException(error)
            check()
    finally:
        consumer.close()


def _ends(client_options: Mapping[str, str], topic: str, partitions: int) -> dict[int, int]:
    """Reads end offsets uncommitted: the broker may not yet show the last commit to readers of committed records."""
    consumer = clients.consumer(client_options, group=_GROUP, uncommitted=True)
    try:
        offsets = (consumer.get_watermark_offsets(TopicPartition(topic, number)) for number in range(partitions))
        return {number: high for number, (_, high) in enumerate(offsets)}
    finally:
        consumer.close()


def parsed(message: Any) -> OutputRecord:
    value = json.loads(message.value())
    pair = Pair(message.key().decode(), value["probe_value"], value["build_value"])
    return OutputRecord(value["id"], pair)


def _time(candidate: tuple[int, str]) -> int:
    return candidate[0]
