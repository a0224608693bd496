"""What has to be allowed in Kafka, as docs/operations.md lists it, and what of that is not.

DescribeConfigs on the inputs is not part of it: `compaction` warns where it is missing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from balajoin.config.models import Config
from balajoin.errors import KafkaError, Problem
from balajoin.kafka import topics
from balajoin.kafka.topics import VisibleTopic

_READ, _WRITTEN, _BOTH = ("Describe", "Read"), ("Describe", "Write"), ("Describe", "Read", "Write")

Needed = Mapping[str, Sequence[str]]
"""Operations on the topic that a setting names."""

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
    """Raises a KafkaError that names all that is missing."""
    if found is None:
        found = topics.look_up(config.kafka, config.topics_by_setting.values())
    lacking = list(missing(config, found, needed))
    if lacking:
        raise KafkaError(
            f"Kafka at {config.kafka.bootstrap_servers} denies {topics.who(config.kafka)} "
            f"{', '.join(map(str, lacking))}: ask for these ACLs"
        )


def missing(config: Config, found: Mapping[str, VisibleTopic], needed: Needed = OF_SERVICE) -> Iterator[Right]:
    """Of topics that may be there. A broker that tells no operations has the last word when they are tried."""
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
