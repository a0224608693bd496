"""The rights that a join needs in Kafka, as listed in docs/operations.md, and those that are missing.

DescribeConfigs on the inputs is not listed here: `compaction` warns if it is missing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from balajoin.config.models import Config
from balajoin.errors import KafkaError, Problem
from balajoin.kafka import topics
from balajoin.kafka.topics import VisibleTopic

_READ, _WRITTEN, _BOTH = ("Describe", "Read"), ("Describe", "Write"), ("Describe", "Read", "Write")

Needed = Mapping[str, Sequence[str]]
"""The operations needed on a topic, by the setting that names the topic."""

OF_SERVICE: Needed = {
    "probe.topic": _READ,
    "build.topic": _READ,
    "output.topic": _WRITTEN,
    "output.commit_topic": _BOTH,
    "join.dead_letter_topic": _WRITTEN,
    "join.late_topic": _WRITTEN,
    "join.control_topic": _BOTH,
    "join.replica_topic": _BOTH,
}
OF_TAIL: Needed = {"join.control_topic": _READ, "join.replica_topic": _READ}


@dataclass(frozen=True)
class Right:
    operation: str
    topic: str
    setting: str

    def __str__(self) -> str:
        return f"{self.operation} on topic {self.topic} ({self.setting})"


def require(config: Config, needed: Needed = OF_SERVICE, found: Mapping[str, VisibleTopic] | None = None) -> None:
    """Raises a KafkaError that names all missing rights."""
    if found is None:
        found = topics.look_up(config.kafka, config.topics_by_setting.values())
    lacking = list(missing(config, found, needed))
    if lacking:
        raise KafkaError(
            f"Kafka at {config.kafka.bootstrap_servers} denies {topics.who(config.kafka)} "
            f"{', '.join(map(str, lacking))}: ask for these ACLs"
        )


def missing(config: Config, found: Mapping[str, VisibleTopic], needed: Needed = OF_SERVICE) -> Iterator[Right]:
    """The missing rights on topics in `found`. A broker that does not tell rights decides at the first try."""
    for setting, operations in needed.items():
        topic = config.topics_by_setting.get(setting, "")
        at_broker = found.get(topic)
        if at_broker is not None and at_broker.allowed is not None:
            yield from (Right(each, topic, setting) for each in operations if each not in at_broker.allowed)


def problems(config: Config, found: Mapping[str, VisibleTopic]) -> list[Problem]:
    user = topics.who(config.kafka)
    return [
        Problem(right.setting, f"{user} may not {right.operation} topic {right.topic}", "ask for that ACL")
        for right in missing(config, found)
    ]
