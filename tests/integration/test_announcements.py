"""Nodes read signals that routers have just written, on a real broker."""

from collections.abc import Callable

import pytest

from balajoin.control import announcements
from balajoin.control.announcements import announced_places, announced_signals, announcement
from balajoin.control.encoding import signal_record
from balajoin.core.messages import Signal, Stamp
from balajoin.errors import KafkaError
from balajoin.kafka.producer import PartitionOffset, Publisher
from balajoin.observe.report import BatchReport
from kafka_data import everything, send
from pipeline import Pipeline, rows

NOW = Stamp("a-join", 7)


def published(publisher: Publisher, topic: str, stamp: Stamp, signals: list[Signal]) -> list[PartitionOffset]:
    places: list[PartitionOffset] = []
    records = [signal_record(stamp, signal.hash % 5, signal) for signal in signals]
    publisher.publish(topic, records, whole=True, note_place=lambda _, place: places.append(place))
    return places


def test_what_was_announced_is_read_and_nothing_else(bootstrap: str, make_topic: Callable[..., str]) -> None:
    topic = make_topic(partitions=3)
    publisher = Publisher.of({"bootstrap.servers": bootstrap})
    batches = [[Signal(hash_, batch, 99, key=b"k") for hash_ in range(20)] for batch in range(3)]
    places = [published(publisher, topic, NOW, batch) for batch in batches]
    assert len({partition for partition, _ in places[1]}) > 1
    for batch, written in zip(batches, places, strict=True):
        told = announced_places(announcement(written))
        assert told == written
        found = list(announced_signals(publisher.options, topic, told, NOW))
        assert sorted(found, key=lambda signal: signal.hash) == batch
    assert list(announced_signals(publisher.options, "no-topic", [], NOW)) == []


def test_a_batch_never_goes_on_without_its_signals(
    bootstrap: str, make_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcements, "_PATIENCE_S", 1.0)
    topic = make_topic(partitions=1)
    publisher = Publisher.of({"bootstrap.servers": bootstrap})
    ((partition, offset),) = published(publisher, topic, NOW, [Signal(1, 1, 99)])
    with pytest.raises(KafkaError, match=rf"^cannot read topic {topic}: .*\. Ask for the operations Describe and Read"):
        list(announced_signals(publisher.options, topic, [(partition, offset), (partition, offset + 1)], NOW))
    with pytest.raises(KafkaError, match=f"^topic {topic} holds other records"):
        list(announced_signals(publisher.options, topic, [(partition, offset)], Stamp("another-join", 7)))


def test_build_rows_are_pulled_in_the_batch_that_finds_a_key_skewed(pipeline: Callable[..., Pipeline]) -> None:
    running = pipeline(lateness="1 h", skew={"threshold": 0.1})
    send(running.bootstrap, running.build.topic, rows(0, 100))
    send(running.bootstrap, running.probe.topic, rows(100, 300))
    first, second = map(BatchReport.of, running.run())
    assert everything(running.bootstrap, running.control)
    assert sum(source.signals for source in first.sources) > 0
    assert sum(node.pulls for node in first.nodes) > 0
    assert sum(node.pulls for node in second.nodes) == 0
    waits = [node.pull_waits for node in second.nodes if node.pull_waits]
    assert waits
    assert all(len(by_batches) == 2 and by_batches[1] > 0 for by_batches in waits)
    assert running.assert_equals_batch_join() > 1000
