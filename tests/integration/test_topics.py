"""Topics on real brokers, and a login and TLS for both kinds of clients."""

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from balajoin.config.models import Kafka
from balajoin.control.tail import tail
from balajoin.errors import KafkaError
from balajoin.kafka import topics
from balajoin.kafka.client_options import librdkafka_options, spark_reader_options, spark_writer_options
from balajoin.kafka.topics import Shape
from kafka_data import Sent, send
from secured import PASSWORD, SecuredBroker, escaped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def kafka(bootstrap: str) -> Kafka:
    return Kafka(bootstrap_servers=bootstrap)


def fresh(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


def test_asking_for_a_topic_creates_none_where_the_broker_would(super_user: Kafka) -> None:
    nowhere = fresh("nowhere")
    assert topics.existing(super_user, [nowhere]) == {}
    assert topics.existing(super_user, [nowhere]) == {}


def test_existing_counts_partitions_and_creates_nothing(kafka: Kafka, make_topic: Callable[..., str]) -> None:
    three, nowhere = make_topic("three", partitions=3), fresh("nowhere")
    assert topics.existing(kafka, [three, nowhere]) == {three: 3}
    assert topics.existing(kafka, [nowhere]) == {}
    assert topics.partition_counts(kafka, [three]) == {three: 3}
    with pytest.raises(KafkaError, match=f"topic {nowhere} does not exist at {kafka.bootstrap_servers}"):
        topics.partition_counts(kafka, [three, nowhere])


def test_only_what_is_missing_is_created(kafka: Kafka, make_topic: Callable[..., str]) -> None:
    there, new = make_topic("there", partitions=2), fresh("new")
    assert topics.create_missing(kafka, {there: Shape(5), new: Shape(5)}, replication=1) == [new]
    assert topics.existing(kafka, [there, new]) == {there: 2, new: 5}
    assert topics.create_missing(kafka, {there: Shape(5), new: Shape(5)}, replication=1) == []


def test_a_topic_gets_its_settings(kafka: Kafka, admin: AdminClient) -> None:
    new = fresh("new")
    topics.create_missing(kafka, {new: Shape(1, {"max.message.bytes": "1234567"})}, replication=1)
    resource = ConfigResource(ConfigResource.Type.TOPIC, new)
    assert admin.describe_configs([resource])[resource].result()["max.message.bytes"].value == "1234567"


def test_a_replication_that_cannot_be_had_says_so(kafka: Kafka) -> None:
    with pytest.raises(KafkaError, match=r"cannot be created: .* set topics\.replication"):
        topics.create_missing(kafka, {fresh("new"): Shape(1)}, replication=3)


def test_the_tail_of_the_control_topics_shows_what_is_foreign(kafka: Kafka, make_topic: Callable[..., str]) -> None:
    control, replicas = make_topic("control", 1), make_topic("replicas", 2)
    assert list(tail(kafka, control, replicas, lines=5, follow=False)) == []
    send(kafka.bootstrap_servers, control, [Sent(None, b"%d" % n, 1000 * n) for n in range(9)])
    lines = list(tail(kafka, control, replicas, lines=2, follow=False))
    assert [line.partition("foreign  ")[2] for line in lines] == [
        f"{control} 0/7: not an object",
        f"{control} 0/8: not an object",
    ]


@pytest.fixture
def super_user(secured: SecuredBroker) -> Kafka:
    return secured.client()


def test_the_same_options_let_both_kinds_of_clients_in(super_user: Kafka, spark: "SparkSession") -> None:
    from confluent_kafka import Producer

    topic = fresh("secured")
    topics.create_missing(super_user, {topic: Shape(1)}, replication=1)
    producer = Producer(librdkafka_options(super_user))
    producer.produce(topic, b"hello")
    assert producer.flush(20) == 0
    reader = spark.read.format("kafka").options(**spark_reader_options(super_user)).option("subscribe", topic)
    records = reader.load()
    assert [bytes(record["value"]) for record in records.collect()] == [b"hello"]
    records.write.format("kafka").options(**spark_writer_options(super_user)).option("topic", topic).save()
    assert reader.load().count() == 2


def test_no_plan_shows_a_secret(super_user: Kafka, spark: "SparkSession", capsys: pytest.CaptureFixture[str]) -> None:
    records = (
        spark.readStream.format("kafka").options(**spark_reader_options(super_user)).option("subscribe", "x").load()
    )
    records.explain(extended=True)
    assert escaped(PASSWORD) not in capsys.readouterr().out
    assert escaped(PASSWORD) not in str(spark.sparkContext.getConf().toDebugString())


def test_a_wrong_password_is_told_as_such(secured: SecuredBroker) -> None:
    wrong = secured.client(password="hunter2")
    with pytest.raises(KafkaError, match=r"check user, password and sasl\.mechanism") as caught:
        topics.existing(wrong, ["x"])
    assert "hunter2" not in str(caught.value)
