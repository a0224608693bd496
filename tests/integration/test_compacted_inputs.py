"""Topics that a real broker compacts between two attempts of a batch, and null values, which such topics hold."""

import json
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from balajoin import Output, cli
from balajoin.config.loading import load
from balajoin.config.models import Config, Kafka, Stream
from balajoin.edge.output import to_records
from balajoin.errors import ConfigError
from balajoin.kafka import compaction, topics
from balajoin.observe.report import BatchReport
from balajoin.service.run import require_topics
from kafka_data import DRAINED_WITHIN_S, Sent, everything, send
from pipeline import MINUTE, START, Pipeline
from samples import join_toml
from secured import Acl, SecuredBroker

BROKER_ID = "1"
QUICKLY_COMPACTED = {
    "cleanup_policy": "compact",
    "segment_ms": "1000",
    "min_cleanable_dirty_ratio": "0.01",
    "delete_retention_ms": "0",
}


@pytest.fixture
def busy_cleaner(admin: AdminClient) -> Iterator[None]:
    """Makes the broker's log cleaner look for work all the time, not every 15 s."""
    name = "log.cleaner.backoff.ms"

    def alter(operation: AlterConfigOpType, value: str | None) -> None:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        broker = ConfigResource(ResourceType.BROKER, BROKER_ID, incremental_configs=[entry])
        admin.incremental_alter_configs([broker])[broker].result(timeout=DRAINED_WITHIN_S)

    alter(AlterConfigOpType.SET, "200")
    yield
    alter(AlterConfigOpType.DELETE, None)


def await_compaction(bootstrap: str, topic: str, left: list[bytes | None]) -> None:
    deadline = time.monotonic() + DRAINED_WITHIN_S
    while (values := [message.value() for message in everything(bootstrap, topic)]) != left:
        assert time.monotonic() < deadline, f"{topic} is not compacted, it holds {values}"
        time.sleep(0.2)


def test_a_repeated_batch_finds_fewer_records_of_a_compacted_topic(
    pipeline: Callable[..., Pipeline], make_topic: Callable[..., str], busy_cleaner: None
) -> None:
    """This is why such an input is refused: two attempts of a batch may differ."""
    running = pipeline(lateness="1 h", policy="hash")
    running.build = Stream(topic=make_topic("build", 1, **QUICKLY_COMPACTED), allow_compacted=True)
    old = [Sent(b"k", b"old-%d" % n, START + n) for n in range(5)]
    send(running.bootstrap, running.build.topic, old)
    send(running.bootstrap, running.probe.topic, [Sent(b"k", b"probe", START)])
    (first,) = map(BatchReport.of, running.run())
    assert (first.entered_rows, first.rows_out) == ({"probe": 1, "build": 5}, 5)
    running.crash_before_last_commit()

    # The first of these records is new enough to end a segment. Kafka never compacts the last segment.
    send(running.bootstrap, running.build.topic, [Sent(b"k", b"new", START + MINUTE)])
    send(running.bootstrap, running.build.topic, [Sent(b"other", b"-", START + 2 * MINUTE)])
    await_compaction(running.bootstrap, running.build.topic, [b"new", b"-"])
    repeated, *_ = map(BatchReport.of, running.run())
    assert repeated.batch == first.batch
    assert (repeated.entered_rows, repeated.rows_out) == ({"probe": 1, "build": 0}, 0)


@pytest.fixture
def file(bootstrap: str, make_topic: Callable[..., str], tmp_path: Path) -> Path:
    """The file of a join whose build topic is compacted."""
    path = tmp_path / "join.toml"
    path.write_text(
        join_toml(
            kafka={"bootstrap_servers": bootstrap},
            probe={"topic": make_topic("probe")},
            build={"topic": make_topic("build", cleanup_policy="compact,delete")},
            join={"nodes": 2},
            output={"topic": f"out-{uuid.uuid4().hex[:12]}"},
            run={"checkpoint": str(tmp_path / "checkpoint")},
        )
    )
    config = load(path, {})
    topics.create_missing(config.kafka, topics.shapes(config), 1)
    return path


def complaint(config: Config) -> str:
    return f"build.topic: topic {config.build.topic} is compacted (cleanup.policy=compact,delete), so a batch that is "


def allowing(file: Path) -> None:
    file.write_text(file.read_text().replace("[build]\n", "[build]\nallow_compacted = true\n"))


@pytest.mark.usefixtures("untouched_logging")
def test_a_service_does_not_start_on_a_compacted_input_unless_told_to(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["run", "-c", str(file)]) == 2
    said = capsys.readouterr().err
    assert f"line 6: {complaint(load(file, {}))}" in said
    assert "cleanup.policy=delete, or set build.allow_compacted = true" in said
    allowing(file)
    require_topics(load(file, {}), str(file))


@pytest.mark.spark
def test_check_says_that_an_input_is_compacted_unless_that_is_allowed(file: Path) -> None:
    command = [sys.executable, "-m", "balajoin", "check", "-c", str(file)]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 2
    assert f"{file} has 1 problem:\n  line 6: {complaint(load(file, {}))}" in refused.stderr
    allowing(file)
    assert subprocess.run(command, capture_output=True, text=True).stdout == f"{file}: all good\n"


def test_a_librarys_query_is_refused_too(pipeline: Callable[..., Pipeline], make_topic: Callable[..., str]) -> None:
    running = pipeline()
    running.probe = Stream(topic=make_topic("probe", cleanup_policy="compact"))
    with pytest.raises(ConfigError, match=r"probe\.topic: topic .* is compacted \(cleanup\.policy=compact\)"):
        running.joined()


def test_a_broker_that_does_not_tell_is_warned_of(secured: SecuredBroker, caplog: pytest.LogCaptureFixture) -> None:
    topic, user, password = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("tables", "user", "password"))
    internal = Kafka(bootstrap_servers=secured.broker.internal_servers)
    topics.create_missing(internal, {topic: topics.Shape(1, {"cleanup.policy": "compact"})}, 1)
    secured.add_user(user, password)
    secured.allow(user, [Acl("Read", "topic", topic)])
    kafka = secured.client(user, password, "SCRAM-SHA-512")
    compaction.require_none(kafka, {"build": Stream(topic=topic)})
    (warning,) = caplog.messages
    assert warning == (
        f"build.topic: the broker does not tell user {user} whether topic {topic} is compacted; if it is, "
        "results may be lost (ask for the operation DescribeConfigs on it)"
    )
    compaction.require_none(kafka, {"build": Stream(topic=topic, allow_compacted=True)})
    assert len(caplog.messages) == 1
    secured.allow(user, [Acl("Describe_Configs", "topic", topic)])
    with pytest.raises(ConfigError, match=f"topic {topic} is compacted"):
        compaction.require_none(kafka, {"build": Stream(topic=topic)})


def test_a_topic_that_does_not_exist_is_nothing_to_look_at(bootstrap: str) -> None:
    found = compaction.look(Kafka(bootstrap_servers=bootstrap), {"build": Stream(topic="no-such-topic")})
    assert (found.problems, found.warnings) == ([], [])


def test_a_null_value_is_a_row_and_not_the_same_as_no_match(pipeline: Callable[..., Pipeline]) -> None:
    """A null value does not delete the earlier rows of its key either."""
    running = pipeline(type="full", lateness="0 s")
    probe = [Sent(b"a", b"probe-a", START), Sent(b"b", None, START), Sent(b"c", None, START)]
    build = [Sent(b"a", b"build-a", START), Sent(b"a", None, START + 1), Sent(b"b", b"build-b", START)]
    for topic, records in ((running.probe.topic, probe), (running.build.topic, build)):
        send(running.bootstrap, topic, records)
    running.run()
    for minutes in (60, 61):  # the first rows advance event time, and the second start a batch that sees it
        for topic in (running.probe.topic, running.build.topic):
            later = [Sent(b"later", b"-", START + minutes * MINUTE, partition) for partition in range(2)]
            send(running.bootstrap, topic, later)
        running.run()
    written: dict[bytes, list[set[str]]] = defaultdict(list)
    for row in to_records(running.results(), Output(topic="out", id="header")).collect():
        written[bytes(row["key"])].append(json.loads(row["value"]).keys() - {"id", "key"})
    both, times = {"probe_value", "build_value"}, {"probe_time", "build_time"}
    assert sorted(written[b"a"], key=len) == [{"probe_value"} | times, both | times]
    assert written[b"b"] == [{"build_value"} | times]
    assert written[b"c"] == [{"probe_time"}]
    assert everything(running.bootstrap, running.dead) == []
