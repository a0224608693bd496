"""The end of the demo in a few lines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Self

from balajoin.demo.checking import Verdict
from balajoin.demo.comparing import Comparison, comparison, explanation, node_list
from balajoin.demo.figures import shares
from balajoin.demo.joining import Joining
from balajoin.demo.picture import JoinPicture
from balajoin.demo.scenario import SKEW

_LABEL, _COLUMN = 16, 34
_HOT_KEYS = 3


@dataclass(frozen=True)
class Joined:
    """What is known of one of the joins in the end."""

    last: JoinPicture
    usual_batch_ms: float
    verdict: Verdict


@dataclass(frozen=True)
class Summary:
    rows_by_topic: Mapping[str, int]
    seconds: float
    joins: Sequence[Joined]

    @classmethod
    def of(cls, joining: Joining, verdicts: Sequence[Verdict]) -> Self:
        joins = [
            Joined(join.picture(), join.watch.usual_batch_ms, verdict)
            for join, verdict in zip(joining.joins, verdicts, strict=True)
        ]
        return cls(joining.production.counts, joining.duration_s, joins)

    def __str__(self) -> str:
        rows = sum(self.rows_by_topic.values())
        parts = ", ".join(f"{count:,} {topic}" for topic, count in self.rows_by_topic.items())
        head = f"  {rows:,} rows ({parts}) in {self.seconds:.0f} s, {rows / self.seconds:,.0f} rows/s to each join"
        note = [f"  {line}" for line in explanation(SKEW.balance).splitlines()]
        policies = f"[bold]{_line(('', [join.last.policy for join in self.joins]))}[/]"
        return "\n".join([head, "", policies, *map(_line, self._figures()), "", *self._hot_keys(), "", *note])

    def _hot_keys(self) -> list[str]:
        keys = [key for join in self.joins for key in join.last.hot_keys]
        texts = [f"{key.name}, {key.share:.0%} of views, on {node_list(key.nodes)}" for key in keys[:_HOT_KEYS]]
        more = [f"and {len(keys) - _HOT_KEYS} more"] if len(keys) > _HOT_KEYS else []
        labelled = zip_longest(["skewed keys"], texts + more or ["none"], fillvalue="")
        return [f"  {label:<{_LABEL}}{text}" for label, text in labelled]

    def _figures(self) -> Comparison:
        joins, figures = self.joins, [join.last.figures for join in self.joins]
        return [
            ("rows by node", [" ".join(f"{share:.1%}" for share in shares(each.node_rows)) for each in figures]),
            ("most on a node", [f"{max(each.node_rows):,} (node {each.busiest[0]})" for each in figures]),
            *comparison(figures),
            ("batches", [f"{join.last.batches:,} of {join.usual_batch_ms / 1000:.1f} s on average" for join in joins]),
            ("pairs found", [f"{join.verdict.found:,} of {join.verdict.expected:,} expected" for join in joins]),
            ("check", [_check(join.verdict) for join in joins]),
        ]


def _check(verdict: Verdict) -> str:
    text = f"{verdict.missing:,} missing, {verdict.unexpected:,} unexpected"
    return f"{text}, {verdict.repeats:,} repeated" if verdict.repeats else text


def _line(figure: tuple[str, Sequence[str]]) -> str:
    label, texts = figure
    return f"  {label:<{_LABEL}}{''.join(f'{text:<{_COLUMN}}' for text in texts)}".rstrip()
