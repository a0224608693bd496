"""The end of the demo in a few lines: the joins next to each other, figure by figure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Self

from balajoin.demo.check import Verdict
from balajoin.demo.scenario import SKEW
from balajoin.observe.hot_keys import HotKeys, JoinHotKey
from balajoin.observe.live.picture import busiest, shares, size
from balajoin.observe.report import BatchReport, balance_factor

_NONE = "–"
_LABEL, _COLUMN = 16, 34
_HOT_KEYS = 3
_KINDS = ("probe", "build", "replica")  # of traffic; signals are too few to show
_NOTE = f"""\
B = (most − least) / most rows on a node; for the rows of skewed keys,
bala-join aims at {SKEW.balance} or less. Traffic is what left the node it was on."""


@dataclass(frozen=True)
class Totals:
    """What a join's batches did, added up."""

    node_rows: tuple[int, ...]
    """Rows that each node got, of both streams."""

    skewed_rows: tuple[int, ...]
    """Rows that each node got because their key is skewed."""

    traffic: Mapping[str, int]
    """Bytes that left the node they were on, by kind."""

    signals: int = 0
    pulls: int = 0
    pulled_rows: int = 0
    forwarded_rows: int = 0
    batches: int = 0
    batch_ms: float = 0.0
    """Mean duration of a batch."""

    @classmethod
    def of(cls, reports: Sequence[BatchReport], nodes: int) -> Self:
        by_node = [node for report in reports for node in report.nodes]
        return cls(
            node_rows=_added((report.routed_rows for report in reports), nodes),
            skewed_rows=_added((report.skewed_rows for report in reports), nodes),
            traffic={kind: sum(report.traffic[kind] for report in reports) for kind in _KINDS},
            signals=sum(source.signals for report in reports for source in report.sources),
            pulls=sum(node.pulls for node in by_node),
            pulled_rows=sum(node.pulled_rows for node in by_node),
            forwarded_rows=sum(node.forwarded_rows for node in by_node),
            batches=len(reports),
            batch_ms=sum(report.duration_ms for report in reports) / max(len(reports), 1),
        )


@dataclass(frozen=True)
class Joined:
    """All that is known of one of the joins in the end."""

    policy: str
    totals: Totals
    hot_keys: Sequence[JoinHotKey]
    """Most frequent first."""

    verdict: Verdict

    @classmethod
    def of(cls, policy: str, nodes: int, reports: Sequence[BatchReport], verdict: Verdict) -> Self:
        hot_keys = HotKeys()
        for report in reports:
            hot_keys.add(report)
        return cls(policy, Totals.of(reports, nodes), hot_keys.all(), verdict)


def summary(rows_by_topic: Mapping[str, int], seconds: float, joins: Sequence[Joined]) -> str:
    rows = sum(rows_by_topic.values())
    parts = ", ".join(f"{count:,} {topic}" for topic, count in rows_by_topic.items())
    return "\n".join(
        [
            f"  {rows:,} rows ({parts}) in {seconds:.0f} s, {rows / seconds:,.0f} rows/s to each join",
            "",
            f"[bold]{_line('', [join.policy for join in joins])}[/]",
            *[_line(label, [text(join) for join in joins]) for label, text in _FIGURES.items()],
            "",
            *_hot_keys(joins),
            "",
            *[f"  {line}" for line in _NOTE.splitlines()],
        ]
    )


def _rows_by_node(join: Joined) -> str:
    return " ".join(f"{share:.1%}" for share in shares(join.totals.node_rows))


def _most_on_a_node(join: Joined) -> str:
    most = max(join.totals.node_rows)
    return f"{most:,} (node {join.totals.node_rows.index(most)})"


def _replica_rows(join: Joined) -> str:
    totals = join.totals
    return f"{totals.pulled_rows:,} pulled, {totals.forwarded_rows:,} forwarded" if totals.pulls else _NONE


def _check(join: Joined) -> str:
    verdict = join.verdict
    text = f"{verdict.missing:,} missing, {verdict.unexpected:,} unexpected"
    return f"{text}, {verdict.repeats:,} repeated" if verdict.repeats else text


_FIGURES: dict[str, Callable[[Joined], str]] = {
    "rows by node": _rows_by_node,
    "most on a node": _most_on_a_node,
    "busiest node": lambda join: busiest(join.totals.node_rows),
    "B, all rows": lambda join: _factor(join.totals.node_rows),
    "B, skewed rows": lambda join: _factor(join.totals.skewed_rows),
    "traffic": lambda join: size(sum(join.totals.traffic.values())),
    "  probe": lambda join: size(join.totals.traffic["probe"]),
    "  build": lambda join: size(join.totals.traffic["build"]),
    "  replica": lambda join: size(join.totals.traffic["replica"]),
    "signals": lambda join: _count(join.totals.signals),
    "pulls": lambda join: _count(join.totals.pulls),
    "replica rows": _replica_rows,
    "batches": lambda join: f"{join.totals.batches:,} of {join.totals.batch_ms / 1000:.1f} s on average",
    "pairs found": lambda join: f"{join.verdict.found:,} of {join.verdict.expected:,} expected",
    "check": _check,
}


def _hot_keys(joins: Iterable[Joined]) -> list[str]:
    keys = [key for join in joins for key in join.hot_keys]
    texts = [f"{key.name}, {key.share:.0%} of views, on {_node_list(key.nodes)}" for key in keys[:_HOT_KEYS]]
    more = [f"and {len(keys) - _HOT_KEYS} more"] if len(keys) > _HOT_KEYS else []
    labelled = zip_longest(["skewed keys"], texts + more or ["none"], fillvalue="")
    return [f"  {label:<{_LABEL}}{text}" for label, text in labelled]


def _node_list(nodes: Sequence[int]) -> str:
    return ("node " if len(nodes) == 1 else "nodes ") + " ".join(map(str, sorted(nodes)))


def _factor(node_rows: Sequence[int]) -> str:
    factor = balance_factor(node_rows)
    return _NONE if factor is None else f"{factor:.2f}"


def _count(number: int) -> str:
    return f"{number:,}" if number else _NONE


def _added(batches: Iterable[Sequence[int]], nodes: int) -> tuple[int, ...]:
    """Sums by node. A batch without rows has an empty list."""
    return tuple(map(sum, zip(*([0] * nodes, *filter(None, batches)), strict=True)))


def _line(label: str, texts: Sequence[str]) -> str:
    return f"  {label:<{_LABEL}}{''.join(f'{text:<{_COLUMN}}' for text in texts)}".rstrip()
