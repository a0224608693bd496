"""The service notices a topic that was deleted and created anew since the checkpoint read it."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.cimpl import NewTopic

from balajoin.config.models import Config
from balajoin.errors import KafkaError, StateError
from balajoin.kafka import topic_ids
from balajoin.kafka.topic_ids import TopicWatch

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient
    from pyspark.sql import SparkSession

NOTICED_WITHIN_S = 60


@pytest.fixture
def config(bootstrap: str, make_topic: Callable[..., str], tmp_path: Path) -> Config:
    names = {name: make_topic(name.replace("_", "-")) for name in ("control_topic", "replica_topic")}
    return Config(
        kafka={"bootstrap_servers": bootstrap},
        probe={"topic": make_topic("probe")},
        build={"topic": make_topic("build")},
        join={"before": "1 s", "after": "1 s", "dead_letter_topic": "dead", "late_topic": "late", **names},
        output={"topic": "joined"},
        run={"checkpoint": str(tmp_path / "checkpoint")},
    )


def create_anew(admin: "AdminClient", topic: str) -> None:
    admin.delete_topics([topic])[topic].result(timeout=10)
    while topic in admin.list_topics(timeout=10).topics:
        time.sleep(0.05)
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(timeout=10)
    while topic not in admin.list_topics(timeout=10).topics:
        time.sleep(0.05)


def watch_for_long(watch: TopicWatch) -> None:
    deadline = time.monotonic() + NOTICED_WITHIN_S
    while time.monotonic() < deadline:
        watch.update()
        time.sleep(0.05)


def test_a_checkpoint_remembers_its_topics(spark: "SparkSession", admin: "AdminClient", config: Config) -> None:
    known = topic_ids.verify(spark, config)
    assert set(known.ids) == set(topic_ids.read_topics(config))
    assert len(set(known.ids.values())) == 4
    assert topic_ids.verify(spark, config) == known
    create_anew(admin, config.build.topic)
    with pytest.raises(KafkaError, match=rf"topic {config.build.topic} was .* created anew .* new run\.checkpoint$"):
        topic_ids.verify(spark, config)
    with pytest.raises(KafkaError, match=f"topic {config.build.topic} was deleted and created anew"):
        watch_for_long(TopicWatch(config.kafka, known, config.run.checkpoint))
    (Path(config.run.checkpoint) / "balajoin-topics.json").write_text("{")
    Path(config.run.checkpoint, ".balajoin-topics.json.crc").unlink()
    with pytest.raises(StateError, match="damaged"):
        topic_ids.verify(spark, config)
