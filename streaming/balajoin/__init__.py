"""Skew-proof continuous joins of two Kafka topics on Spark Structured Streaming.

As a service: `balajoin run -c join.toml`. As a library: `join` returns an ordinary streaming DataFrame.
"""

from typing import TYPE_CHECKING, Any

from balajoin.errors import BalaJoinError, BlockError, ConfigError, KafkaError, SetupError, StateError
from balajoin.settings import JoinSettings, Kafka, Output, Stream

if TYPE_CHECKING:
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
    "SetupError",
    "StateError",
    "Stream",
    "join",
    "write_exactly_once",
]


def __getattr__(name: str) -> Any:
    """These bring Spark along; the command line's quick answers do not wait for that."""
    if name == "join":
        from balajoin.query import join

        return join
    if name == "write_exactly_once":
        from balajoin.sinks.exactly_once import write_exactly_once

        return write_exactly_once
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
