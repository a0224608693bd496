"""A local Kafka broker for the demo, tests, benchmarks and first steps."""

from balajoin.embedded.broker import EmbeddedKafka

__all__ = ["EmbeddedKafka"]
