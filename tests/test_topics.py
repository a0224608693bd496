"""Against real brokers: topics, and whether a login and TLS reach both kinds of clients."""

import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from balajoin import topics
from balajoin.clients import librdkafka_options, spark_reader_options, spark_writer_options
from balajoin.config import Kafka
from balajoin.control.tail import tail
from balajoin.errors import ConfigError, KafkaError
from balajoin.topics import Shape
from kafka_data import Sent, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# All that a JAAS line could trip over
PASSWORD = "p\"a'ss \\ w;ord=$é"
STORE_PASSWORD = "changeit"


@pytest.fixture
def kafka(bootstrap: str) -> Kafka:
    return Kafka(bootstrap_servers=bootstrap)


def fresh(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


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


def test_an_unreachable_broker_is_one_line_in_bounded_time(capfd: pytest.CaptureFixture[str]) -> None:
    begin = time.monotonic()
    with pytest.raises(
        KafkaError, match=r"cannot reach Kafka at 127\.0\.0\.1:1 \(.*refused.*bootstrap_servers"
    ) as caught:
        topics.existing(Kafka(bootstrap_servers="127.0.0.1:1"), ["x"])
    assert time.monotonic() - begin < 20
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_the_control_topics_of_an_unreachable_broker_are_one_line_too(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KafkaError, match=r"cannot reach Kafka at 127\.0\.0\.1:1"):
        list(tail(Kafka(bootstrap_servers="127.0.0.1:1"), "control", "replicas", lines=5, follow=False))
    assert capfd.readouterr() == ("", "")


def test_the_tail_of_the_control_topics_shows_what_is_foreign(kafka: Kafka, make_topic: Callable[..., str]) -> None:
    control, replicas = make_topic("control", 1), make_topic("replicas", 2)
    assert list(tail(kafka, control, replicas, lines=5, follow=False)) == []
    send(kafka.bootstrap_servers, control, [Sent(None, b"%d" % n, 1000 * n) for n in range(9)])
    lines = list(tail(kafka, control, replicas, lines=2, follow=False))
    assert [line.partition("foreign  ")[2] for line in lines] == [
        f"{control} 0/7: not an object",
        f"{control} 0/8: not an object",
    ]


@pytest.mark.parametrize(
    ("options", "setting"),
    [
        ({"no.such.option": "x"}, "kafka.options.no.such.option"),
        ({"socket.timeout.ms": "hunter2"}, "kafka.options.socket.timeout.ms"),
        ({"sasl.jaas.config": "hunter2"}, "kafka.options.sasl.jaas.config"),
        ({"security.protocol": "ssl", "ssl.ca.location": "hunter2"}, "kafka.options.ssl.ca.location"),
        (
            {"security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN", "sasl.password": "hunter2"},
            "kafka.options.sasl.password",
        ),
    ],
)
def test_an_option_that_librdkafka_refuses_is_a_problem_of_the_file(options: dict[str, str], setting: str) -> None:
    with pytest.raises(ConfigError) as caught:
        topics.existing(Kafka(bootstrap_servers="127.0.0.1:1", options=options), ["x"])
    [problem] = caught.value.problems
    assert problem.setting == setting
    assert "hunter2" not in str(problem)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A broker that wants TLS and a password."""
    from balajoin.broker import EmbeddedKafka, default_cache, fetch

    keytool = shutil.which("keytool")
    if keytool is None:
        pytest.skip("no keytool beside java")
    folder = tmp_path_factory.mktemp("secured")
    store, certificate = folder / "broker.p12", folder / "broker.pem"
    common = ["-keystore", str(store), "-storepass", STORE_PASSWORD, "-alias", "broker"]
    address = ["-dname", "CN=localhost", "-ext", "san=ip:127.0.0.1", "-keyalg", "RSA"]
    for arguments in (["-genkeypair", *address], ["-exportcert", "-rfc", "-file", str(certificate)]):
        subprocess.run([keytool, *arguments, *common], check=True, capture_output=True)
    login = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_me="{_escaped(PASSWORD)}";'
    properties = {
        "listener.security.protocol.map": "CLIENT:SASL_SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "listener.name.client.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": login,
        "listener.name.client.ssl.keystore.type": "PKCS12",
        "listener.name.client.ssl.keystore.location": str(store),
        "listener.name.client.ssl.keystore.password": STORE_PASSWORD,
    }
    jars = fetch("broker", default_cache(os.environ))
    with EmbeddedKafka(folder / "broker", jars, properties=properties) as broker:
        yield _client(broker.bootstrap_servers, certificate, PASSWORD)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _client(servers: str, certificate: Path, password: str) -> Kafka:
    return Kafka(
        bootstrap_servers=servers,
        options={
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "me",
            "sasl.password": password,
            "ssl.ca.location": str(certificate),
        },
    )


def test_the_same_options_let_both_kinds_of_clients_in(secured: Kafka, spark: "SparkSession") -> None:
    from confluent_kafka import Producer

    topic = fresh("secured")
    topics.create_missing(secured, {topic: Shape(1)}, replication=1)
    producer = Producer(librdkafka_options(secured))
    producer.produce(topic, b"hello")
    assert producer.flush(20) == 0
    reader = spark.read.format("kafka").options(**spark_reader_options(secured)).option("subscribe", topic)
    records = reader.load()
    assert [bytes(record["value"]) for record in records.collect()] == [b"hello"]
    records.write.format("kafka").options(**spark_writer_options(secured)).option("topic", topic).save()
    assert reader.load().count() == 2


def test_no_plan_shows_a_secret(secured: Kafka, spark: "SparkSession", capsys: pytest.CaptureFixture[str]) -> None:
    records = spark.readStream.format("kafka").options(**spark_reader_options(secured)).option("subscribe", "x").load()
    records.explain(extended=True)
    assert _escaped(PASSWORD) not in capsys.readouterr().out
    assert _escaped(PASSWORD) not in str(spark.sparkContext.getConf().toDebugString())


def test_a_wrong_password_is_told_as_such(secured: Kafka) -> None:
    wrong = _client(secured.bootstrap_servers, Path(secured.options["ssl.ca.location"]), "hunter2")
    with pytest.raises(KafkaError, match=r"check user, password and sasl\.mechanism") as caught:
        topics.existing(wrong, ["x"])
    assert "hunter2" not in str(caught.value)
