"""Exactly-once delivery of a real join: readers see a batch once, even if Spark repeats it or a part of it.

Either the nodes write their results themselves, as in the service, or the sink of a DataFrame does.
"""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import balajoin
from balajoin import JoinSettings, Kafka, Output, StateError, Stream
from balajoin.edge.output import to_kafka_columns
from balajoin.errors import ConfigError, KafkaError
from balajoin.kafka.client_options import spark_writer_options
from balajoin.observe import observed
from balajoin.query import plan
from balajoin.sinks.exactly_once import Delivery
from balajoin.spark.failures import Place, explain
from kafka_data import Sent, await_decided, everything, ids_by_both_clients, send

NODES = 2
_TASKS_END_WITHIN_S = 4  # a failed query leaves the other node's task behind: it writes, or Spark ends it
START = 1_700_000_000_000
KEYS = [b"k%d" % number for number in range(40)]


@dataclass
class Service:
    """A join that writes to Kafka, and that tests start and stop. Every key has one pair for each build row."""

    spark: SparkSession
    bootstrap: str
    folder: Path
    make_topic: Callable[..., str]
    nodes_write: bool = False
    policy: str = "hash"
    value: str = "concat(probe_value, build_value)"
    topics: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        partitions = {"probe": 2, "build": 2, "dead": 1, "late": 1, "control": 1, "replicas": 1, "out": 3}
        self.topics = {name: self.make_topic(name, count) for name, count in partitions.items()}
        self.topics["commits"] = self.make_topic("commits", NODES, cleanup_policy="compact")

    @property
    def kafka(self) -> Kafka:
        return Kafka(bootstrap_servers=self.bootstrap)

    @property
    def settings(self) -> JoinSettings:
        return JoinSettings(
            before="1 h",
            after="1 h",
            lateness="1 h",
            nodes=NODES,
            policy=self.policy,
            dead_letter_topic=self.topics["dead"],
            late_topic=self.topics["late"],
            control_topic=self.topics["control"],
            replica_topic=self.topics["replicas"],
        )

    @property
    def output(self) -> Output:
        return Output(topic=self.topics["out"], commit_topic=self.topics["commits"], value=self.value, id="header")

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def joined(self) -> DataFrame:
        return balajoin.join(
            self.spark,
            Stream(topic=self.topics["probe"]),
            Stream(topic=self.topics["build"]),
            kafka=self.kafka,
            settings=self.settings,
            cache_dir=str(self.folder / "cache"),
        )

    def start(self) -> StreamingQuery:
        if self.nodes_write:
            delivery = Delivery.prepare(
                self.spark,
                kafka=self.kafka,
                output=self.output,
                settings=self.settings,
                checkpoint=str(self.checkpoint),
            )
            planned = plan(
                self.spark,
                Stream(topic=self.topics["probe"]),
                Stream(topic=self.topics["build"]),
                kafka=self.kafka,
                settings=self.settings,
                cache_dir=str(self.folder / "cache"),
                checkpoint=str(self.checkpoint),
                delivery=delivery,
            )
            return delivery.writer(planned.prepare()).start()
        return balajoin.write_exactly_once(
            self.joined(),
            kafka=self.kafka,
            output=self.output,
            settings=self.settings,
            checkpoint=str(self.checkpoint),
        ).start()

    def run(self) -> list[Any]:
        """Starts the query once, for all records now in the topics. Returns its progress reports."""
        query = self.start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        return [progress for progress in query.recentProgress if "addBatch" in progress["durationMs"]]

    def assert_spark_saw(self, results: int, progress: list[Any]) -> None:
        """If nodes write, Spark sees no results."""
        expected = 0 if self.nodes_write else results
        assert sum(batch["sink"]["numOutputRows"] for batch in progress) == expected

    def failure(self) -> str:
        with pytest.raises(StreamingQueryException) as raised:
            self.run()
        return str(explain(str(raised.value), Place(self.bootstrap, str(self.checkpoint), "join.toml")))

    def send_rows(self, topic: str, keys: list[bytes] = KEYS) -> None:
        rows = [Sent(key, key, START + number, number % 2) for number, key in enumerate(keys)]
        send(self.bootstrap, self.topics[topic], rows)

    def crash_before_commit_log(self) -> None:
        """Undoes the last commit, as if the driver had been killed after writing the batch and before noting it."""
        last = max((file for file in (self.checkpoint / "commits").iterdir() if file.name.isdigit()), key=_number)
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink(missing_ok=True)

    def ids(self) -> list[str]:
        return ids_by_both_clients(self.bootstrap, self.topics["out"])

    def expected_ids(self) -> list[str]:
        probe, build = (everything(self.bootstrap, self.topics[name]) for name in ("probe", "build"))
        return sorted(
            f"{p.partition()}-{p.offset()}-{b.partition()}-{b.offset()}"
            for p in probe
            for b in build
            if p.key() == b.key()
        )


def _number(file: Path) -> int:
    return int(file.name)


@pytest.fixture(params=["nodes", "sink"])
def service(
    spark: SparkSession,
    bootstrap: str,
    make_topic: Callable[..., str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Service:
    return Service(spark, bootstrap, tmp_path, make_topic, nodes_write=request.param == "nodes")


def test_a_repeated_batch_is_not_written_again(service: Service) -> None:
    for name in ("probe", "build"):
        service.send_rows(name)
    first = service.run()
    service.assert_spark_saw(len(KEYS), first)
    assert all(observed.values(first[0], name) for name in (observed.SOURCES, observed.NODES))
    assert service.ids() == service.expected_ids()

    service.crash_before_commit_log()
    service.send_rows("probe")
    repeated, *following = service.run()
    assert repeated["batchId"] == first[-1]["batchId"]
    service.assert_spark_saw(0, [repeated])
    service.assert_spark_saw(len(KEYS), following)
    assert service.ids() == service.expected_ids()


def test_no_batch_makes_spark_compile_what_an_earlier_one_did(service: Service) -> None:
    """Spark would compile again if its generated code contained a value of the batch, such as its time.

    Each batch gets rows of one stream: Spark compiles other code for a batch with rows of both, and which rows share a
    batch would be chance.
    """
    compiled = getattr(service.spark._jvm, "org.apache.spark.metrics.source.CodegenMetrics").METRIC_COMPILATION_TIME()
    counts = []
    query = service.start()
    try:
        for _ in range(4):
            for name in ("probe", "build"):
                service.send_rows(name)
                query.processAllAvailable()
            counts.append(compiled.getCount())
    finally:
        query.stop()
    assert service.ids() == service.expected_ids()
    assert counts[-1] == counts[-3]


def test_a_batch_written_in_part_is_finished_as_it_was_begun(service: Service) -> None:
    """One node fails at one of its rows, and the other node has written all of its rows.

    Only Spark can compute the first value, and nodes compute the second. Each way can finish what the other began.
    """
    for name in ("probe", "build"):
        service.send_rows(name)
    service.value = "CASE WHEN key = 'k0' THEN raise_error('cut short') ELSE key END"
    written: list[str] = []
    for _ in range(5):  # Spark may cancel the other node's task before it has written
        assert "cut short" in service.failure()
        time.sleep(_TASKS_END_WITHIN_S)
        if written := service.ids():
            break
    assert 0 < len(written) < len(KEYS)

    service.policy, service.value = "pnr", "key"
    with pytest.raises(StateError, match=r'cut short when join\.policy was "hash".*it is "pnr" now'):
        service.run()
    assert service.ids() == written

    service.policy = "hash"
    service.assert_spark_saw(len(KEYS) - len(written), service.run())
    assert service.ids() == service.expected_ids()


def test_an_older_copy_of_the_checkpoint_is_refused_until_told_to_write_again(service: Service) -> None:
    for name in ("probe", "build"):
        service.send_rows(name)
    service.run()
    shutil.copytree(service.checkpoint, service.folder / "copy")
    service.send_rows("probe")
    service.run()
    before = service.ids()
    shutil.rmtree(service.checkpoint)
    (service.folder / "copy").rename(service.checkpoint)
    assert "the checkpoint is older than the results" in service.failure()
    assert service.ids() == before == service.expected_ids()

    service.topics["commits"] = service.make_topic("commits", NODES)
    service.run()
    assert sorted(set(service.ids())) == service.expected_ids()
    assert len(service.ids()) == len(before) + len(KEYS)


def test_both_sinks_write_the_same_records_to_the_same_partitions(service: Service) -> None:
    for name in ("probe", "build"):
        service.send_rows(name, [*KEYS, b"", "käse".encode(), b"\xff"])
    service.run()
    plain = service.make_topic("plain", 3)
    query = (
        to_kafka_columns(service.joined(), service.output)
        .writeStream.format("kafka")
        .options(**spark_writer_options(service.kafka))
        .option("topic", plain)
        .option("checkpointLocation", str(service.folder / "plain"))
        .start()
    )
    query.processAllAvailable()
    query.stop()

    def contents(topic: str) -> list[Any]:
        return sorted((m.partition(), m.key(), m.value(), m.headers()) for m in everything(service.bootstrap, topic))

    await_decided(service.bootstrap, service.topics["out"])
    ours = contents(service.topics["out"])
    assert ours == contents(plain)
    assert len(ours) == len(KEYS) + 3
    assert {partition for partition, *_ in ours} == {0, 1, 2}


def test_what_the_commit_topic_must_be(service: Service) -> None:
    service.topics["commits"] = service.make_topic("commits", 1)
    with pytest.raises(ConfigError, match=r"output\.commit_topic: .* has 1 partitions for 2 nodes .*--partitions 2"):
        service.run()
    service.topics["commits"] = "no-such-topic"
    with pytest.raises(KafkaError, match="no-such-topic does not exist"):
        service.run()
    at_least_once = Output(topic="out", delivery="at-least-once")
    with pytest.raises(ConfigError, match=r"output\.delivery: is not exactly-once"):
        balajoin.write_exactly_once(
            service.joined(), kafka=service.kafka, output=at_least_once, settings=service.settings, checkpoint="x"
        )
