"""The metrics of one join, added up batch by batch. Counters begin at zero, gauges with their first value."""

import platform
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version

import pyspark

from balajoin.compute.statistics import NodeStatistics
from balajoin.config.models import Config, JoinSettings, Stream
from balajoin.core.event_time import BEGINNING
from balajoin.core.hashing import shown
from balajoin.core.sides import SIDES
from balajoin.observe import hot_keys
from balajoin.observe.metrics import catalogue
from balajoin.observe.metrics.catalogue import CATALOGUE, Metric
from balajoin.observe.report import BatchReport, TopicProgress, balance
from balajoin.routing.statistics import SourceStatistics

Labels = tuple[str, ...]
_REMEMBERED_BATCHES = 80  # more than the longest wait that nodes report


@dataclass
class Histogram:
    counts: list[int]
    """By bucket; the last one has no bound."""

    sum: float = 0.0


@dataclass(frozen=True)
class Series:
    """The values of one metric of one join, at one moment."""

    metric: Metric
    values: Mapping[Labels, float] = field(default_factory=dict)
    histogram: Histogram | None = None


class JoinMetrics:
    """Call it with every batch's report. It then calls `executors` for the number of executors."""

    def __init__(
        self,
        name: str,
        probe: Stream,
        build: Stream,
        settings: JoinSettings,
        executors: Callable[[], int] | None = None,
    ) -> None:
        self.name = name
        settings = settings.of_inputs(probe, build)
        self._topics = {
            "probe": probe.topic,
            "build": build.topic,
            "control": settings.control_topic,
            "replica": settings.replica_topic,
        }
        self._executors = executors
        self._lock = threading.Lock()
        self._values: dict[Metric, dict[Labels, float]] = defaultdict(dict)
        self._histograms = {
            metric: Histogram([0] * (len(metric.buckets) + 1)) for metric in CATALOGUE if metric.kind == "histogram"
        }
        self._sources: dict[int, SourceStatistics] = {}
        self._ended: dict[int, datetime] = {}
        self._begin(settings)

    @classmethod
    def of(cls, config: Config, executors: Callable[[], int] | None = None) -> "JoinMetrics":
        return cls(config.name, config.probe, config.build, config.join, executors)

    def series(self) -> Iterator[Series]:
        """Yields every metric, all as of the same batch."""
        with self._lock:
            values = {metric: dict(by_labels) for metric, by_labels in self._values.items()}
            histograms = {metric: Histogram(list(h.counts), h.sum) for metric, h in self._histograms.items()}
        for metric in CATALOGUE:
            yield Series(metric, values.get(metric, {}), histograms.get(metric))

    def __call__(self, report: BatchReport) -> None:
        executors = self._executors() if self._executors else None
        with self._lock:
            self._note_rows(report)
            self._note_skew(report)
            for node in report.nodes:
                self._note_node(node, report)
            self._note_time(report)
            if executors is not None:
                self._set(catalogue.EXECUTORS, executors)

    def idle(self, at: datetime) -> None:
        with self._lock:
            self._set(catalogue.LAST_PROGRESS, at.timestamp())

    def _begin(self, settings: JoinSettings) -> None:
        self._set(catalogue.BUILD_INFO, 1, _version(), pyspark.__version__, platform.python_version())
        self._set(catalogue.JOIN_INFO, 1, settings.type, settings.policy, self._topics["probe"], self._topics["build"])
        self._set(catalogue.START, time.time())
        self._set(catalogue.NODES, settings.nodes)
        self._pair_cost = settings.skew.pair_cost
        if settings.balance_limit is not None:
            self._set(catalogue.BALANCE_LIMIT, settings.balance_limit)
        self._set(catalogue.SKEW_THRESHOLD, settings.skew.threshold)
        self._set(catalogue.RETENTION, (settings.before_ms + settings.after_ms + settings.lateness_ms) / 1000)
        for side in SIDES:
            for metric in (catalogue.INPUT_ROWS, catalogue.DEAD_LETTERS, catalogue.LATE_ROWS):
                self._add(metric, 0, side)
        for node in map(str, range(settings.nodes)):
            for route in ("home", "skewed", "build", "replica"):
                self._add(catalogue.NODE_ROWS, 0, node, route)
            self._add(catalogue.OUTPUT_ROWS, 0, node)
            self._add(catalogue.BUSY, 0, node)
        for kind in ("probe", "build", "replica", "signal", "fetched"):
            self._add(catalogue.TRAFFIC, 0, kind)
        for kind in ("new", "repeated"):
            self._add(catalogue.SIGNALS, 0, kind)
        for reason in ("foreign", "stale"):
            self._add(catalogue.SKIPPED, 0, reason)
        for metric in (catalogue.PULLS, catalogue.PULLED_ROWS, catalogue.FORWARDED_ROWS, catalogue.DELAYED):
            self._add(metric, 0)

    def _note_rows(self, report: BatchReport) -> None:
        for side in SIDES:
            self._add(catalogue.INPUT_ROWS, report.entered_rows[side] + report.dead_letters[side], side)
            self._add(catalogue.DEAD_LETTERS, report.dead_letters[side], side)
        for kind, sent in report.traffic.items():
            self._add(catalogue.TRAFFIC, sent, kind)

    def _note_skew(self, report: BatchReport) -> None:
        self._sources.update({source.source: source for source in report.sources})
        self._add(catalogue.SIGNALS, sum(source.signals for source in report.sources), "new")
        self._set_known(catalogue.BALANCE, balance(self._sources.values()))
        for source in report.sources:
            self._set_known(catalogue.SOURCE_BALANCE, balance([source]), str(source.source))
        work = report.work(self._pair_cost)
        if report.sources and sum(work):
            self._set(catalogue.WORK_EXCESS, max(work) * len(work) / sum(work) - 1)
        keys = hot_keys.merged([source.hot_keys for source in self._sources.values()])
        if self._sources:
            self._set(catalogue.HOT_KEYS_KNOWN, len(keys))
        first = {(shown(key.hash),): key for key in keys[: catalogue.HOT_KEYS]}
        self._values[catalogue.HOT_KEY_SHARE] = {labels: key.share for labels, key in first.items()}
        self._values[catalogue.HOT_KEY_NODES] = {labels: len(key.nodes) for labels, key in first.items()}

    def _note_node(self, told: NodeStatistics, report: BatchReport) -> None:
        node = str(told.node)
        skewed = report.skewed_rows[told.node] if report.sources else 0
        self._add(catalogue.NODE_ROWS, told.probe_rows - skewed, node, "home")
        self._add(catalogue.NODE_ROWS, skewed, node, "skewed")
        self._add(catalogue.NODE_ROWS, told.build_rows, node, "build")
        self._add(catalogue.NODE_ROWS, told.replica_rows, node, "replica")
        self._add(catalogue.OUTPUT_ROWS, told.results, node)
        self._add(catalogue.BUSY, told.busy_us / 1e6, node)
        self._add(catalogue.LATE_ROWS, told.late_rows - told.late_build_rows, "probe")
        self._add(catalogue.LATE_ROWS, told.late_build_rows, "build")
        self._add(catalogue.SIGNALS, told.repeated_signals, "repeated")
        self._add(catalogue.PULLS, told.pulls)
        self._add(catalogue.PULLED_ROWS, told.pulled_rows)
        self._add(catalogue.FORWARDED_ROWS, told.forwarded_rows)
        self._add(catalogue.SKIPPED, told.foreign_records, "foreign")
        self._add(catalogue.SKIPPED, told.stale_records, "stale")
        self._add(catalogue.DELAYED, told.delayed_shipments)
        self._add(catalogue.INCOMPLETE, told.incomplete_pulls)
        self._set(catalogue.LEASES, told.leases, node)
        self._set(catalogue.PINS, told.pins, node)
        self._set(catalogue.STATE_ROWS, told.stored_rows, node)
        self._set(catalogue.STATE_BYTES, told.stored_bytes, node)
        self._set(catalogue.WAITING_ROWS, told.waiting_rows, node)
        for batches, keys in enumerate(told.pull_waits):
            self._observe(catalogue.PULL_BATCHES, batches, keys)
            before = self._ended.get(report.batch - batches)
            if before is not None:
                self._observe(catalogue.PULL_SECONDS, (report.ended - before).total_seconds(), keys)

    def _note_time(self, report: BatchReport) -> None:
        for side in SIDES:
            reached = min((node.watermarks[side] for node in report.nodes if node.watermarks), default=BEGINNING)
            if reached > BEGINNING:
                self._set(catalogue.WATERMARK, reached / 1e6, side)
        for stream, read in self._by_stream(report):
            self._set(catalogue.INPUT_LAG, read.lag, stream)
        self._observe(catalogue.BATCH_SECONDS, report.duration_ms / 1000)
        for phase, ms in report.phases_ms.items():
            self._add(catalogue.PHASE_SECONDS, ms / 1000, phase)
        for last in (catalogue.LAST_BATCH, catalogue.LAST_PROGRESS):
            self._set(last, report.ended.timestamp())
        self._ended[report.batch] = report.ended
        self._ended.pop(report.batch - _REMEMBERED_BATCHES, None)

    def _by_stream(self, report: BatchReport) -> Iterator[tuple[str, TopicProgress]]:
        """Matches inputs to streams in their common order, since one topic may be both streams."""
        unnamed = list(report.inputs)
        for stream, topic in self._topics.items():
            read = next((read for read in unnamed if read.topic == topic), None)
            if read is not None:
                unnamed.remove(read)
                yield stream, read

    def _add(self, metric: Metric, amount: float, *labels: str) -> None:
        values = self._values[metric]
        values[labels] = values.get(labels, 0) + amount

    def _set(self, metric: Metric, value: float, *labels: str) -> None:
        self._values[metric][labels] = value

    def _set_known(self, metric: Metric, value: float | None, *labels: str) -> None:
        if value is not None:
            self._set(metric, value, *labels)

    def _observe(self, metric: Metric, value: float, times: int = 1) -> None:
        histogram = self._histograms[metric]
        histogram.counts[sum(value > bound for bound in metric.buckets)] += times
        histogram.sum += value * times


def _version() -> str:
    try:
        return version("balajoin")
    except PackageNotFoundError:  # run from its source
        return "unknown"
