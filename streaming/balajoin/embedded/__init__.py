"""A Kafka of one's own, for the demo, tests, benchmarks and first steps."""

from balajoin.embedded.broker import EmbeddedKafka

__all__ = ["EmbeddedKafka"]
