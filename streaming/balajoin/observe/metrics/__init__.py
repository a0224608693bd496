"""Metrics for Prometheus: `JoinMetrics` adds up one join's batches, `Exporter` serves those of one or several joins."""

from balajoin.config.address import Address
from balajoin.observe.following import follow
from balajoin.observe.metrics.exporter import Exporter
from balajoin.observe.metrics.join_metrics import JoinMetrics

__all__ = ["Address", "Exporter", "JoinMetrics", "follow"]
