"""Looks up topics and the operations that are allowed on them, and creates missing topics."""

import re
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka
from confluent_kafka import TopicCollection
from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from balajoin.config.models import Config, Kafka
from balajoin.config.redaction import Redactor, is_secret
from balajoin.errors import ConfigError, KafkaError, Problem
from balajoin.kafka import clients
from balajoin.kafka.client_options import librdkafka_options

_TIMEOUT_S = 10.0
_CODES = confluent_kafka.KafkaError

_WILL_NOT_TELL = (
    _CODES.TOPIC_AUTHORIZATION_FAILED,
    _CODES.CLUSTER_AUTHORIZATION_FAILED,
    _CODES.UNSUPPORTED_VERSION,
    _CODES._UNSUPPORTED_FEATURE,
)

_WHAT_TO_DO = {
    _CODES.TOPIC_AUTHORIZATION_FAILED: "ask for the operation Create on it, or have it created",
    _CODES.CLUSTER_AUTHORIZATION_FAILED: "ask for the operation Create on it, or have it created",
    _CODES.INVALID_REPLICATION_FACTOR: "set topics.replication to at most the number of brokers",
    _CODES.INVALID_PARTITIONS: "set topics.partitions to a number that the cluster allows",
}


@dataclass(frozen=True)
class VisibleTopic:
    """A topic as a client sees it. `allowed` has Kafka's names of operations; None if the broker does not tell."""

    partitions: int
    allowed: frozenset[str] | None = None


FORBIDDEN = VisibleTopic(0, frozenset())
"""A topic without the right to Describe it. The broker does not even tell whether it exists."""


def look_up(kafka: Kafka, names: Iterable[str]) -> dict[str, VisibleTopic]:
    """The topics that exist, and those that may exist but are forbidden."""
    return _Admin(kafka).look_up(names)


def existing(kafka: Kafka, names: Iterable[str]) -> dict[str, int]:
    """The partition counts of the topics that exist."""
    found = look_up(kafka, names)
    for name, topic in found.items():
        if topic is FORBIDDEN:
            raise KafkaError(
                f"{who(kafka)} may not Describe topic {name}: ask for that ACL at {kafka.bootstrap_servers}"
            )
    return {name: topic.partitions for name, topic in found.items()}


def who(kafka: Kafka) -> str:
    name = kafka.options.get("sasl.username")
    return f"user {name}" if name else "this client"


def partition_counts(kafka: Kafka, names: Iterable[str]) -> dict[str, int]:
    """The partition counts of topics that must exist."""
    wanted = list(names)
    counts = existing(kafka, wanted)
    for topic in wanted:
        if topic not in counts:
            raise KafkaError(f"topic {topic} does not exist at {kafka.bootstrap_servers}: create it first")
    return counts


def ids(kafka: Kafka, names: Iterable[str]) -> tuple[str, dict[str, str]]:
    """The ids of the cluster and of topics that must exist."""
    return _Admin(kafka).ids(list(names))


def cleanup_policies(kafka: Kafka, names: Iterable[str]) -> dict[str, str | None]:
    """The cleanup policies of the topics that exist; None if the broker does not tell."""
    return _Admin(kafka).cleanup_policies(dict.fromkeys(names))


def describer(kafka: Kafka) -> Callable[[list[str]], dict[str, Future[Any]]]:
    """A function that asks for topics' descriptions, over one connection, and does not wait for the answers."""
    return _Admin(kafka).describe


@dataclass(frozen=True)
class Shape:
    """How a topic is created."""

    partitions: int
    settings: Mapping[str, str] = field(default_factory=dict)


# Signals are few, so the control topic needs one partition: each partition costs Spark a task. The next batch reads
# what a batch publishes; the records stay for a week in case the service is stopped.
_CONTROL = Shape(1, {"retention.ms": str(7 * 86_400_000)})
# Only the last marker of each node counts, and it must outlast any stop. So the topic is compacted, early and in small
# segments.
_COMMIT_SETTINGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.bytes": str(1 << 20),
    "segment.ms": str(86_400_000),
}
# A build row of Kafka's default largest size must fit into a replica record, with the fields around it.
_REPLICA_SETTINGS = {**_CONTROL.settings, "max.message.bytes": str(16 << 20)}


def shapes(config: Config) -> dict[str, Shape]:
    """The shape of every topic of the service, inputs first."""
    names = config.topics_by_setting
    commits = names.get("output.commit_topic")
    usual = dict.fromkeys(names.values(), Shape(config.topics.partitions))
    return {
        **usual,
        names["join.control_topic"]: _CONTROL,
        names["join.replica_topic"]: Shape(config.topics.partitions, _REPLICA_SETTINGS),
        **({commits: Shape(config.join.nodes, _COMMIT_SETTINGS)} if commits else {}),
    }


def create_missing(kafka: Kafka, wanted: Mapping[str, Shape], replication: int) -> list[str]:
    """Creates the missing topics, and returns their names."""
    found = existing(kafka, wanted)
    missing = {name: shape for name, shape in wanted.items() if name not in found}
    if missing:
        _Admin(kafka).create(missing, replication)
    return list(missing)


class _Admin:
    def __init__(self, kafka: Kafka) -> None:
        self._servers = kafka.bootstrap_servers
        options = librdkafka_options(kafka)
        self._redactor = Redactor(value for name, value in options.items() if is_secret(name))
        self._complaints: list[confluent_kafka.KafkaError] = []
        try:
            self._client = clients.admin(options, on_error=self._complaints.append)
        except confluent_kafka.KafkaException as error:
            raise _refused(error.args[0].str(), options, self._redactor) from None

    def look_up(self, names: Iterable[str]) -> dict[str, VisibleTopic]:
        """Asks by name, with a request that never creates a topic."""
        wanted = TopicCollection(list(dict.fromkeys(names)))
        asked = self._client.describe_topics(wanted, include_authorized_operations=True, request_timeout=_TIMEOUT_S)
        found = {}
        for name, future in asked.items():
            try:
                topic = future.result(timeout=2 * _TIMEOUT_S)
            except confluent_kafka.KafkaException as error:
                code = error.args[0].code()
                if code == _CODES.TOPIC_AUTHORIZATION_FAILED:
                    found[name] = FORBIDDEN
                elif code not in (_CODES.UNKNOWN_TOPIC_OR_PART, _CODES._UNKNOWN_TOPIC):
                    raise self._unreachable(error.args[0]) from None
            else:
                allowed = frozenset(each.name.capitalize() for each in topic.authorized_operations or ())
                found[name] = VisibleTopic(len(topic.partitions), allowed or None)
        return found

    def cleanup_policies(self, names: Iterable[str]) -> dict[str, str | None]:
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        if not resources:
            return {}
        found: dict[str, str | None] = {}
        for resource, future in self._client.describe_configs(resources, request_timeout=_TIMEOUT_S).items():
            try:
                found[resource.name] = str(future.result(timeout=2 * _TIMEOUT_S)["cleanup.policy"].value)
            except confluent_kafka.KafkaException as error:
                code = error.args[0].code()
                if code in _WILL_NOT_TELL:
                    found[resource.name] = None
                elif code not in (_CODES.UNKNOWN_TOPIC_OR_PART, _CODES._UNKNOWN_TOPIC):
                    raise self._unreachable(error.args[0]) from None
        return found

    def describe(self, names: list[str]) -> dict[str, Future[Any]]:
        found: dict[str, Future[Any]] = self._client.describe_topics(
            confluent_kafka.TopicCollection(names), request_timeout=_TIMEOUT_S
        )
        return found

    def ids(self, names: list[str]) -> tuple[str, dict[str, str]]:
        self._await_visible(names)
        try:
            cluster = self._client.list_topics(timeout=_TIMEOUT_S).cluster_id
            found = {name: str(answer.result().topic_id) for name, answer in self.describe(names).items()}
        except confluent_kafka.KafkaException as error:
            raise self._unreachable(error.args[0]) from None
        return str(cluster), found

    def create(self, topics: Mapping[str, Shape], replication: int) -> None:
        new = [
            NewTopic(name, num_partitions=shape.partitions, replication_factor=replication, config=dict(shape.settings))
            for name, shape in topics.items()
        ]
        for name, future in self._client.create_topics(new, request_timeout=_TIMEOUT_S).items():
            try:
                future.result(timeout=2 * _TIMEOUT_S)
            except confluent_kafka.KafkaException as error:
                self._check_creation(name, error.args[0])
        self._await_visible(topics)

    def _check_creation(self, name: str, error: confluent_kafka.KafkaError) -> None:
        if error.code() == _CODES.TOPIC_ALREADY_EXISTS:  # another client was faster
            return
        hint = _WHAT_TO_DO.get(error.code(), "ask the administrators of the cluster")
        raise KafkaError(f"topic {name} cannot be created: {_sentence(self._redactor(error.str()))}; {hint}")

    def _await_visible(self, names: Iterable[str]) -> None:
        """Waits until all brokers know the new topics: a query that starts earlier would not find them."""
        deadline = time.monotonic() + _TIMEOUT_S
        while not set(names) <= self.look_up(names).keys():
            if time.monotonic() > deadline:
                raise KafkaError(
                    f"new topics are not yet visible on all brokers of {self._servers}: try again in a moment"
                )
            time.sleep(0.1)

    def _unreachable(self, error: confluent_kafka.KafkaError) -> KafkaError:
        self._client.poll(0)  # delivers the errors of the network threads
        cause = next((each for each in self._complaints if each.code() != _CODES._ALL_BROKERS_DOWN), error)
        hint = (
            "check user, password and sasl.mechanism"
            if cause.code() == _CODES._AUTHENTICATION
            else ("check kafka.bootstrap_servers, that a broker runs there, and security.protocol")
        )
        reason = _sentence(self._redactor(cause.str()))
        return KafkaError(f"cannot reach Kafka at {self._servers} ({reason}): {hint}")


def _refused(complaint: str, options: Iterable[str], redactor: Redactor) -> ConfigError:
    blamed = max((name for name in options if name in complaint), key=len, default="")
    setting = f"kafka.options.{blamed}" if blamed else "kafka.options"
    if "JAAS" in complaint:
        hint = "write sasl.username and sasl.password instead, or move it to [kafka.java]"
        problem = Problem("kafka.options.sasl.jaas.config", "only Spark's client has this option", hint)
    elif "No such configuration property" in complaint:
        problem = Problem(
            setting, "librdkafka has no such option", "if it is an option of Spark's client, move it to [kafka.java]"
        )
    elif "Invalid value" in complaint:
        problem = Problem(
            setting, "librdkafka refuses this value", "librdkafka's CONFIGURATION.md lists the values of each option"
        )
    else:
        problem = Problem(setting, _sentence(redactor(complaint)).removeprefix("Failed to create admin client: "))
    return ConfigError([problem])


def _sentence(reason: str) -> str:
    """The reason in one line, without librdkafka's details about its connections."""
    reason = re.sub(r"^\S+/\S+: |\(after \d+ms in state \w+\)", "", reason)
    return " ".join(reason.split()).rstrip(".")
