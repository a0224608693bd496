"""Skew-proof continuous joins of two Kafka topics on Spark Structured Streaming.

As a service: `balajoin run -c join.toml`. As a library: `join` returns an ordinary streaming DataFrame.
"""

from typing import TYPE_CHECKING, Any

from balajoin.errors import BalaJoinError, BlockError, ConfigError, KafkaError, SetupError, StateError
from balajoin.settings import JoinSettings, Kafka, Stream

if TYPE_CHECKING:
    from balajoin.query import join

__all__ = [
    "BalaJoinError",
    "BlockError",
    "ConfigError",
    "JoinSettings",
    "Kafka",
    "KafkaError",
    "SetupError",
    "StateError",
    "Stream",
    "join",
]


def __getattr__(name: str) -> Any:
    """`join` brings Spark along; the command line's quick answers do not wait for that."""
    if name == "join":
        from balajoin.query import join

        return join
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
