import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balajoin.config.models import Kafka
from balajoin.errors import ConfigError
from balajoin.kafka import clients
from balajoin.kafka.client_options import (
    is_secret,
    java_options,
    librdkafka_options,
    redact,
    spark_reader_options,
    spark_writer_options,
)

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIE\n-----END ENCRYPTED PRIVATE KEY-----\n"
OLD_KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\n"


def kafka(options: dict[str, str] | None = None, **more: dict[str, str]) -> Kafka:
    return Kafka(bootstrap_servers="a:9092,b:9092", options=options or {}, **more)


def refused(options: dict[str, str]) -> dict[str, str]:
    """The message for each option."""
    with pytest.raises(ConfigError) as caught:
        java_options(kafka(options))
    return {each.setting.removeprefix("kafka.options."): str(each) for each in caught.value.problems}


def test_plain_brokers_need_no_translation() -> None:
    assert librdkafka_options(kafka()) == {"bootstrap.servers": "a:9092,b:9092"}
    assert java_options(kafka()) == {"bootstrap.servers": "a:9092,b:9092", "security.protocol": "PLAINTEXT"}


def test_options_reach_every_client_and_extras_only_their_own() -> None:
    both = kafka({"client.id": "x"}, java={"max.request.size": "9"}, librdkafka={"client.id": "y", "linger.ms": "5"})
    assert java_options(both)["client.id"] == "x"
    assert java_options(both)["max.request.size"] == "9"
    assert "linger.ms" not in java_options(both)
    assert librdkafka_options(both)["client.id"] == "y"
    assert "max.request.size" not in librdkafka_options(both)


def test_spark_wants_a_prefix() -> None:
    expected = {
        "kafka.bootstrap.servers": "a:9092,b:9092",
        "kafka.security.protocol": "PLAINTEXT",
        "kafka.client.id": "x",
    }
    for options in (spark_reader_options, spark_writer_options):
        assert options(kafka({"client.id": "x"})).items() >= expected.items()


def test_what_a_user_sets_wins_over_our_tuning() -> None:
    tuned = Kafka(bootstrap_servers="a:1", java={"max.poll.records": "9", "batch.size": "8"})
    assert spark_reader_options(tuned)["kafka.max.poll.records"] == "9"
    assert spark_writer_options(tuned)["kafka.batch.size"] == "8"


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [
        ("PLAIN", "plain.PlainLoginModule"),
        ("SCRAM-SHA-256", "scram.ScramLoginModule"),
        ("SCRAM-SHA-512", "scram.Scram"),
    ],
)
@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_a_login_becomes_jaas(name: str, mechanism: str, module: str) -> None:
    options = java_options(
        kafka({"security.protocol": "sasl_ssl", name: mechanism, "sasl.username": "me", "sasl.password": 'a"b\\c'})
    )
    assert options["security.protocol"] == "SASL_SSL"
    assert options["sasl.mechanism"] == mechanism
    assert module in options["sasl.jaas.config"]
    assert options["sasl.jaas.config"].endswith('required username="me" password="a\\"b\\\\c";')
    assert not {"sasl.username", "sasl.password", "sasl.mechanisms"} & options.keys()


def read_by_stream_tokenizer(quoted: str) -> str:
    """Reads a quoted string by Java's rules, as far as balajoin's texts need them."""
    assert quoted[0] == quoted[-1] == '"'
    inside = quoted[1:-1]
    assert not re.search(r'[\n\r]|(?<!\\)(?:\\\\)*"', inside)
    return re.sub(r"\\(.)", lambda escape: {"n": "\n", "r": "\r"}.get(escape[1], escape[1]), inside)


@given(st.text())
def test_any_password_survives_jaas(password: str) -> None:
    login = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "me"}
    jaas = java_options(kafka({**login, "sasl.password": password}))["sasl.jaas.config"]
    quoted = jaas.partition(" password=")[2].removesuffix(";")
    assert read_by_stream_tokenizer(quoted) == password


def test_a_login_that_java_cannot_do_is_refused() -> None:
    said = refused({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"})["sasl.mechanism"]
    assert "SCRAM-SHA-512" in said
    assert "[kafka.java]" in said
    assert "sasl.username" in refused({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"})
    assert "sasl.mechanism" in refused({"security.protocol": "SASL_PLAINTEXT"})


def test_a_jaas_line_for_java_is_taken_as_it_is() -> None:
    options = kafka(
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, java={"sasl.jaas.config": "x required;"}
    )
    assert java_options(options)["sasl.jaas.config"] == "x required;"
    assert "sasl.jaas.config" not in librdkafka_options(options)


def test_pem_files_reach_java_as_text(tmp_path: Path) -> None:
    for name, text in {"ca.pem": CERTIFICATE, "me.pem": CERTIFICATE, "key.pem": KEY}.items():
        (tmp_path / name).write_text(text)
    given_options = {
        "security.protocol": "SSL",
        "ssl.ca.location": str(tmp_path / "ca.pem"),
        "ssl.certificate.location": str(tmp_path / "me.pem"),
        "ssl.key.location": str(tmp_path / "key.pem"),
        "ssl.key.password": "hunter2",
        "ssl.endpoint.identification.algorithm": "none",
    }
    assert java_options(kafka(given_options)) == {
        "bootstrap.servers": "a:9092,b:9092",
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": CERTIFICATE,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": CERTIFICATE,
        "ssl.keystore.key": KEY,
        "ssl.key.password": "hunter2",
        "ssl.endpoint.identification.algorithm": "",
    }
    assert given_options.items() <= librdkafka_options(kafka(given_options)).items()


def test_pem_texts_and_key_stores_are_known_too() -> None:
    assert java_options(kafka({"ssl.ca.pem": CERTIFICATE}))["ssl.truststore.certificates"] == CERTIFICATE
    store = java_options(kafka({"ssl.keystore.location": "/x.p12", "ssl.keystore.password": "p"}))
    assert (store["ssl.keystore.type"], store["ssl.keystore.location"]) == ("PKCS12", "/x.p12")


def test_tls_files_that_cannot_serve_are_refused_together(tmp_path: Path) -> None:
    (tmp_path / "old.key").write_text(OLD_KEY)
    (tmp_path / "me.pem").write_text(CERTIFICATE)
    (tmp_path / "junk").write_bytes(b"\xff\x00")
    said = refused(
        {
            "ssl.ca.location": str(tmp_path / "gone.pem"),
            "ssl.certificate.location": str(tmp_path / "me.pem"),
            "ssl.key.location": str(tmp_path / "old.key"),
            "enable.ssl.certificate.verification": "false",
        }
    )
    assert "cannot be read" in said["ssl.ca.location"]
    assert "openssl pkcs8" in said["ssl.key.location"]
    assert "ssl.ca.location instead" in said["enable.ssl.certificate.verification"]
    assert "not a PEM file" in refused({"ssl.ca.location": str(tmp_path / "junk")})["ssl.ca.location"]
    assert "cannot be read" in refused({"ssl.ca.location": str(tmp_path)})["ssl.ca.location"]
    assert "is missing" in refused({"ssl.certificate.location": str(tmp_path / "me.pem")})["ssl.key.location"]


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password",
        "kafka.sasl.jaas.config",
        "ssl.key.password",
        "ssl.keystore.key",
        "ssl.key.pem",
        "sasl.oauthbearer.client.secret",
        "spark.hadoop.fs.s3a.access.key",
        "SOME_TOKEN",
    ],
)
def test_secrets_are_known_by_name(name: str) -> None:
    assert is_secret(name)
    assert redact({name: "hunter2", "client.id": "x"}) == {name: "***", "client.id": "x"}


@pytest.mark.parametrize("name", ["sasl.username", "bootstrap.servers", "ssl.ca.location", "probe.key", "group.id"])
def test_other_names_are_not(name: str) -> None:
    assert not is_secret(name)


def test_the_same_options_share_a_client() -> None:
    options = {"bootstrap.servers": "127.0.0.1:1", "client.id": "x"}
    assert clients.shared_admin(clients.pairs(options)) is clients.shared_admin(
        clients.pairs(dict(reversed(options.items())))
    )


def test_a_transaction_lasts_as_long_as_its_user_says() -> None:
    assert clients.transaction_timeout_s({}) == 600
    assert clients.transaction_timeout_s({"transaction.timeout.ms": "1500"}) == 1.5
