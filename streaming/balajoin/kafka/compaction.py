"""Whether an input is compacted: Kafka then deletes a record when a newer one of the same key has come.

A batch that is repeated reads its records again, and must find the same ones. Of a compacted topic it may find fewer.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from balajoin.config.models import Kafka, Stream
from balajoin.core.sides import Side
from balajoin.errors import ConfigError, Problem
from balajoin.kafka import topics

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Findings:
    problems: list[Problem]
    warnings: list[Problem]
    """Of topics that the broker tells nothing about."""


def look(kafka: Kafka, inputs: Mapping[Side, Stream]) -> Findings:
    """At those inputs that exist and may not be compacted."""
    asked = {side: stream.topic for side, stream in inputs.items() if not stream.allow_compacted}
    policies = topics.cleanup_policies(kafka, asked.values())
    found = Findings([], [])
    for side, topic in asked.items():
        policy = policies.get(topic, "")
        if policy is None:
            found.warnings.append(_unknown(side, topic, topics.who(kafka)))
        elif "compact" in policy.split(","):
            found.problems.append(_compacted(side, topic, policy))
    return found


def require_none(kafka: Kafka, inputs: Mapping[Side, Stream]) -> None:
    """Raises a ConfigError that names the compacted ones, and warns of those that the broker tells nothing about."""
    found = look(kafka, inputs)
    for warning in found.warnings:
        _logger.warning("%s", warning)
    if found.problems:
        raise ConfigError(found.problems)


def _compacted(side: Side, topic: str, policy: str) -> Problem:
    return Problem(
        f"{side}.topic",
        f"topic {topic} is compacted (cleanup.policy={policy}), so a batch that is repeated may find fewer records "
        "than before, and results may be lost",
        f"join a copy of it with cleanup.policy=delete, or set {side}.allow_compacted = true after reading about "
        "compaction in docs/operations.md",
    )


def _unknown(side: Side, topic: str, user: str) -> Problem:
    return Problem(
        f"{side}.topic",
        f"the broker does not tell {user} whether topic {topic} is compacted, which could cost results",
        "ask for the operation DescribeConfigs on it",
    )
