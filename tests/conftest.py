"""Fixtures: a broker, topics and a Spark session. They import inside functions, so that pure tests start at once."""

import logging
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from examples import examples

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient
    from pyspark.sql import SparkSession

    from balajoin.embedded import EmbeddedKafka
    from pipeline import Pipeline
    from secured import SecuredBroker

settings.register_profile("local", deadline=None, print_blob=True, max_examples=examples(100))
settings.register_profile("ci", settings.get_profile("local"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")
if fuzzed := os.environ.get("BALAJOIN_FUZZ"):
    settings.register_profile("fuzz", settings.get_profile("local"), max_examples=int(fuzzed))
    settings.load_profile("fuzz")

# For Spark in this process and in the services that tests start. Queries here are too short to profit from the JVM's
# second compiler and parallel collector: without them, a start and 25 almost empty batches take 65 s instead of 92.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

_VISIBLE_WITHIN_S = 10

# Tests that start a broker, Spark or a browser without these fixtures set the marker themselves.
MARKER_BY_FIXTURE = {"broker": "broker", "secured": "broker", "spark": "spark", "chromium": "browser"}


@pytest.hookimpl(tryfirst=True)  # before pytest selects tests by `-m`
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        for marker in {MARKER_BY_FIXTURE[name] for name in fixtures if name in MARKER_BY_FIXTURE}:
            item.add_marker(marker)


@pytest.fixture
def untouched_logging(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restores the process's logging after a test of the command line, which changes it."""
    for name in (None, "balajoin"):
        logger = logging.getLogger(name)
        monkeypatch.setattr(logger, "handlers", list(logger.handlers))
        monkeypatch.setattr(logger, "propagate", logger.propagate)
        monkeypatch.setattr(logger, "level", logger.level)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator["EmbeddedKafka"]:
    from balajoin.embedded import EmbeddedKafka
    from balajoin.spark.jars import default_cache, fetch

    jars = fetch("broker", default_cache(os.environ))
    with EmbeddedKafka(tmp_path_factory.mktemp("broker"), jars) as running:
        yield running


@pytest.fixture(scope="session")
def bootstrap(broker: "EmbeddedKafka") -> str:
    return broker.bootstrap_servers


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> "AdminClient":
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": bootstrap})


def _await_visible(admin: "AdminClient", name: str) -> None:
    """A broker answers a moment before it has told its own metadata of the topic."""
    from confluent_kafka import KafkaException, TopicCollection

    deadline = time.monotonic() + _VISIBLE_WITHIN_S
    while True:
        try:
            admin.describe_topics(TopicCollection([name]))[name].result()
            return
        except KafkaException:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.05)


@pytest.fixture
def make_topic(admin: "AdminClient") -> Callable[..., str]:
    from confluent_kafka.cimpl import NewTopic

    def make(prefix: str = "t", partitions: int = 2, **config: str) -> str:
        """`config` takes Kafka's names with underscores: `retention_ms="1000"`."""
        name = f"{prefix}-{uuid.uuid4().hex[:12]}"
        dotted = {key.replace("_", "."): value for key, value in config.items()}
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dotted)
        admin.create_topics([topic])[name].result(timeout=_VISIBLE_WITHIN_S)
        _await_visible(admin, name)
        return name

    return make


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    from balajoin.spark.jars import default_cache
    from balajoin.spark.session import create_session

    session = create_session(
        master="local[2,4]",
        app_name="tests",
        spark_conf={"spark.sql.shuffle.partitions": "4"},
        cache=default_cache(os.environ),
    )
    yield session
    session.stop()


@pytest.fixture
def pipeline(
    spark: "SparkSession", bootstrap: str, make_topic: Callable[..., str], tmp_path: Path
) -> Iterator[Callable[..., "Pipeline"]]:
    from balajoin import Stream
    from pipeline import Pipeline

    def make(probe: dict[str, Any] | None = None, build: dict[str, Any] | None = None, **settings: Any) -> "Pipeline":
        return Pipeline(
            spark,
            bootstrap,
            tmp_path,
            Stream(topic=make_topic("probe"), **(probe or {})),
            Stream(topic=make_topic("build"), **(build or {})),
            make_topic("dead", 1),
            make_topic("late", 1),
            make_topic("control", 1),
            make_topic("replicas", 2),
            **settings,
        )

    yield make
    shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SecuredBroker"]:
    """A broker that requires TLS, a login and ACLs."""
    from secured import secured_broker

    with secured_broker(tmp_path_factory.mktemp("secured")) as running:
        yield running
