"""Tests a join without Spark and Kafka: `LocalCluster` runs all of it in one process. See docs/library.md#tests."""

from balajoin.testing.local_cluster import LocalCluster, Result, Row

__all__ = ["LocalCluster", "Result", "Row"]
