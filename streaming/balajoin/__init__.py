"""Skew-proof continuous joins of two Kafka topics on Spark Structured Streaming.

As a service: `balajoin run -c join.toml`. As a library: `join` returns an ordinary streaming DataFrame.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from balajoin.errors import BalaJoinError, BlockError, ConfigError, KafkaError, Problem, SetupError, StateError

if TYPE_CHECKING:
    from balajoin.config.models import JoinSettings, Kafka, Output, Skew, Stream
    from balajoin.query import join
    from balajoin.sinks.exactly_once import write_exactly_once

__all__ = [
    "BalaJoinError",
    "BlockError",
    "ConfigError",
    "JoinSettings",
    "Kafka",
    "KafkaError",
    "Output",
    "Problem",
    "SetupError",
    "Skew",
    "StateError",
    "Stream",
    "join",
    "write_exactly_once",
]
_FOUND_IN = {
    **dict.fromkeys(("JoinSettings", "Kafka", "Output", "Skew", "Stream"), "balajoin.config.models"),
    "join": "balajoin.query",
    "write_exactly_once": "balajoin.sinks.exactly_once",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Imports a name when it is first used: Spark and pydantic would slow down quick commands and Spark's workers."""
    if name not in _FOUND_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_FOUND_IN[name]), name)
