"""Translates one set of Kafka options for two kinds of clients: librdkafka (balajoin's) and Java (Spark's).

Users write librdkafka's names. This module reads the TLS files and gives them to Java as text, so executors need no TLS
files.
"""

from collections.abc import Mapping
from pathlib import Path

from balajoin.config.models import Kafka
from balajoin.config.redaction import is_secret, redact
from balajoin.errors import ConfigError, Problem

__all__ = [
    "is_secret",
    "java_options",
    "librdkafka_options",
    "redact",
    "spark_reader_options",
    "spark_writer_options",
]

_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
# Reading 1.1M records of 75 bytes on 2 cores takes 3.4 s with Kafka's defaults and 0.9 s with these. Spark polls past
# its last record, and there a fetch waits for more (500 ms per task); and each poll of 500 records costs extra. With a
# wait of 10 ms here and in `clients`, an almost empty batch takes 297 ms instead of 273.
_QUICK_FETCHES = {"fetch.max.wait.ms": "1", "max.poll.records": "10000"}
# Measured only together with fetches of 8 MiB: pass-through of the same records went from 5.2 to 3.5 s.
_LARGE_BATCHES = {"batch.size": str(256 << 10), "linger.ms": "10"}
_READABLE_KEYS = ("BEGIN PRIVATE KEY", "BEGIN ENCRYPTED PRIVATE KEY")


def librdkafka_options(kafka: Kafka) -> dict[str, str]:
    return {"bootstrap.servers": kafka.bootstrap_servers, **kafka.options, **kafka.librdkafka}


def java_options(kafka: Kafka) -> dict[str, str]:
    options = dict(kafka.options)
    translated = {"bootstrap.servers": kafka.bootstrap_servers}
    problems: list[Problem] = []
    for translate in (_sasl, _truststore, _keystore, _verification):
        try:
            translated.update(translate(options, kafka))
        except ConfigError as error:
            problems.extend(error.problems)
    if problems:
        raise ConfigError(problems)
    return {**options, **translated, **kafka.java}


def spark_reader_options(kafka: Kafka) -> dict[str, str]:
    """For Spark's Kafka source."""
    return _for_spark({**_QUICK_FETCHES, **java_options(kafka)})


def spark_writer_options(kafka: Kafka) -> dict[str, str]:
    """For Spark's Kafka sink."""
    return _for_spark({**_LARGE_BATCHES, **java_options(kafka)})


def _for_spark(options: Mapping[str, str]) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in options.items()}


# Each of these functions removes options from `options` that Java does not know, and returns Java's equivalents.


def _sasl(options: dict[str, str], kafka: Kafka) -> dict[str, str]:
    protocol = options.pop("security.protocol", "PLAINTEXT").upper()
    mechanism = (options.pop("sasl.mechanisms", "") or options.pop("sasl.mechanism", "")).upper()
    username, password = options.pop("sasl.username", None), options.pop("sasl.password", None)
    chosen = {"security.protocol": protocol, **({"sasl.mechanism": mechanism} if mechanism else {})}
    if "sasl.jaas.config" in kafka.java or not protocol.startswith("SASL"):
        return chosen
    module = _LOGIN_MODULES.get(mechanism)
    if module is None:
        raise _problem(
            "sasl.mechanism",
            "balajoin cannot configure Spark's client for this mechanism",
            _for_other_mechanisms(mechanism),
        )
    if username is None or password is None:
        missing = "sasl.username" if username is None else "sasl.password"
        raise _problem(missing, "is missing", "this mechanism needs sasl.username and sasl.password")
    login = f"{module} required username={_quoted(username)} password={_quoted(password)};"
    return {**chosen, "sasl.jaas.config": login}


def _for_other_mechanisms(mechanism: str) -> str:
    known = f"set it to {', '.join(_LOGIN_MODULES)}"
    return f"{known}, or give sasl.jaas.config under [kafka.java]" if mechanism else known


def _truststore(options: dict[str, str], kafka: Kafka) -> dict[str, str]:
    certificates = _pem(options, "ssl.ca.pem", "ssl.ca.location")
    if certificates is None:
        return {}
    return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": certificates}


def _keystore(options: dict[str, str], kafka: Kafka) -> dict[str, str]:
    if "ssl.keystore.location" in options:  # librdkafka reads only PKCS12; Java's default is another type
        return {"ssl.keystore.type": "PKCS12"}
    chain = _pem(options, "ssl.certificate.pem", "ssl.certificate.location")
    key = _pem(options, "ssl.key.pem", "ssl.key.location")
    if chain is None and key is None:
        return {}
    if chain is None or key is None:
        missing = "ssl.certificate.location" if chain is None else "ssl.key.location"
        raise _problem(missing, "is missing", "a client certificate needs its key, and the key its certificate")
    if not any(header in key for header in _READABLE_KEYS):
        hint = "convert it: openssl pkcs8 -topk8 -nocrypt -in old.key -out new.key"
        raise _problem("ssl.key.location", "Spark's client reads keys in PKCS#8 only", hint)
    return {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key}


def _verification(options: dict[str, str], kafka: Kafka) -> dict[str, str]:
    if options.get("enable.ssl.certificate.verification", "true").lower() != "true":
        hint = "give the broker's certificate as ssl.ca.location instead"
        raise _problem("enable.ssl.certificate.verification", "Spark's client always verifies certificates", hint)
    if options.get("ssl.endpoint.identification.algorithm") == "none":
        return {"ssl.endpoint.identification.algorithm": ""}  # Java writes "none" as an empty text
    return {}


def _pem(options: dict[str, str], inline_name: str, file_name: str) -> str | None:
    inline, file = options.pop(inline_name, None), options.pop(file_name, None)
    if inline is not None or file is None:
        return inline
    try:
        text = Path(file).read_text(encoding="ascii")
    except OSError as error:
        raise _problem(
            file_name, f"cannot be read: {error.strerror}", "give the path of a PEM file that this user may read"
        ) from None
    except UnicodeDecodeError:
        text = ""
    if "-----BEGIN" not in text:
        raise _problem(file_name, "is not a PEM file", "a PEM file holds a line -----BEGIN …")
    return text


def _quoted(text: str) -> str:
    """Quotes a text for Java's JAAS parser, which is a StreamTokenizer."""
    escapes = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"})
    return f'"{text.translate(escapes)}"'


def _problem(option: str, message: str, suggestion: str) -> ConfigError:
    return ConfigError([Problem(f"kafka.options.{option}", message, suggestion)])
