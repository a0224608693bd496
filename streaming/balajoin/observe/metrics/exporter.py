"""Serves the metrics of one or several joins of this process, in Prometheus' text formats."""

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from types import TracebackType
from typing import Self

from prometheus_client import CollectorRegistry, MetricsHandler
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from pyspark import SparkContext

from balajoin.config.address import Address
from balajoin.config.models import Config
from balajoin.errors import SetupError
from balajoin.observe.http_server import Handler, Server
from balajoin.observe.metrics.catalogue import Metric
from balajoin.observe.metrics.join_metrics import Histogram, JoinMetrics, Series

_logger = logging.getLogger(__name__)


class Exporter:
    """Listens from its construction until it is closed. `address` has the real port where port 0 was given."""

    def __init__(self, address: Address, joins: Sequence[JoinMetrics], setting: str = "metrics.address") -> None:
        registry = CollectorRegistry()
        registry.register(_Joins(joins))
        try:
            self._server = Server(address, _handler(registry), setting)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise SetupError(f"{setting} {address} cannot be listened on: {reason}; choose another") from None
        self.address = address.with_port(self._server.server_port)
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"{self.address.url}metrics"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()


@contextmanager
def served(config: Config) -> Iterator[list[JoinMetrics]]:
    """Serves the join's metrics within the block if `metrics.address` is set. Yields the listeners of its reports."""
    if config.metrics.address is None:
        yield []
        return
    metrics = JoinMetrics.of(config, executors)
    with Exporter(config.metrics.address, [metrics]) as exporter:
        _logger.info("metrics at %s", exporter.url)
        yield [metrics]


def executors() -> int:
    """Returns how many executors Spark has now. In local mode the driver is the only one."""
    context = SparkContext._active_spark_context
    if context is None:
        return 0
    with_driver = int(context._jsc.sc().getExecutorMemoryStatus().size())
    return with_driver if context._jsc.isLocal() else with_driver - 1


def _handler(of_joins: CollectorRegistry) -> type[Handler]:
    class MetricsOfJoins(Handler, MetricsHandler):
        registry = of_joins

        def answer(self) -> None:
            MetricsHandler.do_GET(self)

    return MetricsOfJoins


class _Joins(Collector):
    """One collector for all joins: they have the same metrics, and the format allows each name only once."""

    def __init__(self, joins: Sequence[JoinMetrics]) -> None:
        self._joins = joins

    def collect(self) -> Iterator[Family]:
        for same in zip(*(join.series() for join in self._joins), strict=True):
            yield _family([(join.name, series) for join, series in zip(self._joins, same, strict=True)])

    def describe(self) -> list[Family]:
        """Returns nothing, which skips the check for duplicate names."""
        return []


def _family(by_join: Sequence[tuple[str, Series]]) -> Family:
    metric = by_join[0][1].metric
    labels = ("join", *metric.labels)
    if metric.kind == "histogram":
        histograms = HistogramMetricFamily(metric.name, metric.help, labels=labels)
        for join, series in by_join:
            if series.histogram is not None:
                histograms.add_metric([join], _cumulated(metric, series.histogram), series.histogram.sum)
        return histograms
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=labels)
    for join, series in by_join:
        for values, value in series.values.items():
            family.add_metric([join, *values], value)
    return family


def _cumulated(metric: Metric, histogram: Histogram) -> list[tuple[str, int]]:
    bounds = [*(str(float(bound)) for bound in metric.buckets), "+Inf"]
    return list(zip(bounds, accumulate(histogram.counts), strict=True))
