"""What joins tell Prometheus: `JoinMetrics` adds up one join's batches, `Exporter` serves one or several of them."""

from balajoin.config.address import Address
from balajoin.observe.metrics.exporter import Exporter
from balajoin.observe.metrics.following import follow
from balajoin.observe.metrics.join_metrics import JoinMetrics

__all__ = ["Address", "Exporter", "JoinMetrics", "follow"]
