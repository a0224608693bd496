"""The metrics of the one join that a service runs."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import SparkContext

from balajoin.config.models import Config
from balajoin.observe.metrics.exporter import Exporter
from balajoin.observe.metrics.join_metrics import JoinMetrics

_logger = logging.getLogger(__name__)


@contextmanager
def served(config: Config) -> Iterator[list[JoinMetrics]]:
    """Within, the join's metrics are there for Prometheus, if the settings say where; who gets them must be told."""
    if config.metrics.address is None:
        yield []
        return
    metrics = JoinMetrics.of(config, executors)
    with Exporter(config.metrics.address, [metrics]) as exporter:
        _logger.info("metrics at %s", exporter.url)
        yield [metrics]


def executors() -> int:
    """That Spark has now; in local mode the driver is the only one."""
    context = SparkContext._active_spark_context
    if context is None:
        return 0
    with_driver = int(context._jsc.sc().getExecutorMemoryStatus().size())
    return with_driver if context._jsc.isLocal() else with_driver - 1
