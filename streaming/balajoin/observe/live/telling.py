"""Makes the moments of one join from its reports."""

from collections.abc import Callable, Sequence
from typing import Self

from balajoin.config.models import Config
from balajoin.observe.hot_keys import HotKeys
from balajoin.observe.live.moment import Moment, SkewedKey
from balajoin.observe.report import BatchReport, balance, balance_factor
from balajoin.routing.statistics import SourceStatistics

_HOT_KEYS = 32


class Telling:
    """Call it with each report. It makes a moment and passes it to every listener."""

    def __init__(
        self,
        join: str,
        *,
        policy: str,
        nodes: int,
        epsilon: float | None,
        half_life_ms: int,
        inputs: Sequence[str],
        listeners: Sequence[Callable[[Moment], None]],
    ) -> None:
        self._join = join
        self._policy = policy
        self._epsilon = epsilon
        self._inputs = inputs
        self._listeners = listeners
        self._no_rows = (0,) * nodes
        self._recent_rows = _Fading(nodes, half_life_ms)
        self._sources: dict[int, SourceStatistics] = {}
        self._hot_keys = HotKeys()
        self._stored_rows: dict[int, int] = {}

    @classmethod
    def of(cls, config: Config, listeners: Sequence[Callable[[Moment], None]]) -> Self:
        return cls(
            config.name,
            policy=config.join.policy,
            nodes=config.join.nodes,
            epsilon=config.join.balance_limit,
            half_life_ms=config.join.skew.half_life_ms,
            inputs=(config.probe.topic, config.build.topic),
            listeners=listeners,
        )

    def __call__(self, report: BatchReport) -> None:
        if not self._listeners:
            return
        moment = self._moment(report)
        for listener in self._listeners:
            listener(moment)

    def _moment(self, report: BatchReport) -> Moment:
        ended_ms = round(report.ended.timestamp() * 1000)
        node_rows = report.routed_rows or self._no_rows
        self._recent_rows.add(ended_ms, node_rows)
        self._sources.update({source.source: source for source in report.sources})
        self._hot_keys.add(report)
        self._stored_rows.update({node.node: node.stored_rows for node in report.nodes})
        return Moment(
            join=self._join,
            policy=self._policy,
            epsilon=self._epsilon,
            batch=report.batch,
            ended_ms=ended_ms,
            duration_ms=report.duration_ms,
            rows_in=report.rows_in,
            rows_out=report.rows_out,
            node_rows=node_rows,
            skewed_rows=report.skewed_rows or self._no_rows,
            b_all=balance_factor(self._recent_rows.values),
            b_skewed=balance(self._sources.values()),
            traffic=report.traffic,
            signals=sum(source.signals for source in report.sources),
            pulls=sum(node.pulls for node in report.nodes),
            waiting_rows=sum(read.lag for read in report.inputs if read.topic in self._inputs),
            dead_letters=sum(report.dead_letters.values()),
            late_rows=sum(node.late_rows for node in report.nodes),
            stored_rows=sum(self._stored_rows.values()),
            hot_keys=tuple(
                SkewedKey(key=hot.name, share=min(hot.share, 1.0), nodes=hot.nodes)
                for hot in self._hot_keys.all()[:_HOT_KEYS]
            ),
        )


class _Fading:
    """Rows by node. They count half after each half-life, as the routing policies count them."""

    def __init__(self, nodes: int, half_life_ms: int) -> None:
        self.values = [0.0] * nodes
        self._half_life_ms = half_life_ms
        self._at_ms = 0

    def add(self, at_ms: int, rows: Sequence[int]) -> None:
        kept = 0.5 ** (max(at_ms - self._at_ms, 0) / self._half_life_ms)
        self.values = [value * kept + more for value, more in zip(self.values, rows, strict=True)]
        self._at_ms = at_ms
