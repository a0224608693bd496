"""What joins tell Prometheus: `JoinMetrics` adds up one join's batches, `Exporter` serves one or several of them."""

from balajoin.config.address import Address
from balajoin.metrics.exporter import Exporter
from balajoin.metrics.following import follow
from balajoin.metrics.join_metrics import JoinMetrics

__all__ = ["Address", "Exporter", "JoinMetrics", "follow"]
