"""The types of settings: which values each one accepts, and the message for other values.

No message repeats a text value: it may have come from a secret.
"""

import re
from collections.abc import Mapping
from typing import Annotated, TypeGuard

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, StringConstraints

from balajoin.config import durations
from balajoin.config.address import Address, AddressError
from balajoin.config.problems import wrong
from balajoin.config.redaction import redact

# Spark keeps offsets in its checkpoint, and refuses these options from a user.
_SET_BY_BALAJOIN = frozenset(
    {
        "auto.offset.reset",
        "bootstrap.servers",
        "enable.auto.commit",
        "group.id",
        "interceptor.classes",
        "key.deserializer",
        "key.serializer",
        "metadata.broker.list",
        "transactional.id",
        "value.deserializer",
        "value.serializer",
    }
)
_ISOLATION = "isolation.level"

# The place of state depends on these, so the join sets them and ignores those of the session.
_SPARK_SET_BY_BALAJOIN = {
    "spark.sql.adaptive.enabled": "remove it",
    "spark.sql.shuffle.partitions": "set join.nodes instead",
    "spark.sql.streaming.stateStore.providerClass": "remove it",
}


def _duration_ms(written: object) -> int:
    try:
        return durations.parse_ms(written)
    except durations.DurationError as error:
        raise wrong(error.message, error.suggestion) from None


def _no_boolean(value: object) -> object:
    if isinstance(value, bool):
        raise wrong("must be a whole number")
    return value


TOPIC_RULE = "not a Kafka topic name"
TOPIC_HINT = "up to 249 letters, digits, '.', '_' and '-'"


def is_topic(name: object) -> TypeGuard[str]:
    return isinstance(name, str) and bool(re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name)) and name not in (".", "..")


def _topic(name: str) -> str:
    if not is_topic(name):
        raise wrong(TOPIC_RULE, TOPIC_HINT)
    return name


def servers(written: str) -> str:
    servers = [server.strip() for server in written.split(",")]
    if not all(re.fullmatch(r"[^\s,]+:[0-9]{1,5}", server) for server in servers):
        raise wrong("every server needs a host and a port", "host:9092, several with commas")
    return ",".join(servers)


def _address(written: object) -> Address:
    if isinstance(written, Address):
        return written
    try:
        return Address.parse(str(written))
    except AddressError as error:
        raise wrong(str(error), '"127.0.0.1:8787"') from None


def _flat_texts(table: object) -> object:
    """TOML reads `security.protocol = …` as nested tables, and writes numbers and booleans without quotes."""
    if not isinstance(table, Mapping):
        return table
    flat: dict[str, object] = {}
    for name, value in table.items():
        nested = _flat_texts(value)
        if isinstance(nested, dict):
            flat.update({f"{name}.{inner}": text for inner, text in nested.items()})
        elif isinstance(value, bool):
            flat[name] = str(value).lower()
        else:
            flat[name] = str(value) if isinstance(value, int | float) else value
    return flat


def _no_options_of_ours(options: Mapping[str, str]) -> Mapping[str, str]:
    for name in options:
        if name in _SET_BY_BALAJOIN:
            raise wrong("balajoin sets this option itself", "remove it", at=name)
        if name == _ISOLATION:
            hint = "set probe.isolation_level and build.isolation_level instead"
            raise wrong("each input has a setting of its own for this", hint, at=name)
    return options


def _no_conf_of_ours(conf: Mapping[str, str]) -> Mapping[str, str]:
    for name in conf:
        if name in _SPARK_SET_BY_BALAJOIN:
            raise wrong("balajoin sets this itself", _SPARK_SET_BY_BALAJOIN[name], at=name)
    return conf


Text = Annotated[str, StringConstraints(min_length=1)]
Topic = Annotated[str, AfterValidator(_topic)]
WholeNumber = Annotated[int, BeforeValidator(_no_boolean)]
Milliseconds = Annotated[int, BeforeValidator(_duration_ms)]
ListenAddress = Annotated[Address, BeforeValidator(_address), PlainSerializer(str)]
Texts = Annotated[Mapping[str, str], BeforeValidator(_flat_texts)]
ClientOptions = Annotated[Texts, AfterValidator(_no_options_of_ours), PlainSerializer(redact)]
SparkConf = Annotated[Texts, AfterValidator(_no_conf_of_ours), PlainSerializer(redact)]
