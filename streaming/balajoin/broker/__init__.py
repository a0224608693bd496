"""A real Kafka broker for tests, demo and benchmarks, and the jars that it and Spark's connector need."""

from balajoin.broker.embedded import EmbeddedKafka
from balajoin.broker.jars import default_cache, fetch

__all__ = ["EmbeddedKafka", "default_cache", "fetch"]
