"""Finds inputs that are compacted: there Kafka deletes a record once a newer one of the same key has come.

A repeated batch must read the same records again. From a compacted topic it may read fewer.
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
    """For topics whose policy the broker does not tell."""


def look(kafka: Kafka, inputs: Mapping[Side, Stream]) -> Findings:
    """Checks the inputs that exist and that the settings do not allow to be compacted."""
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
    """Raises a ConfigError that names the compacted inputs. Warns of inputs whose policy the broker does not tell."""
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
        f"the broker does not tell {user} whether topic {topic} is compacted; if it is, results may be lost",
        "ask for the operation DescribeConfigs on it",
    )
