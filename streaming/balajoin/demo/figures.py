"""What a policy did with the rows, added up from what the operators tell of each batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from balajoin.observe.report import BatchReport

_KINDS = ("probe", "build", "replica")  # signals are too few to show


@dataclass(frozen=True)
class Figures:
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

    @classmethod
    def none(cls, nodes: int) -> Self:
        return cls((0,) * nodes, (0,) * nodes, dict.fromkeys(_KINDS, 0))

    def with_batch(self, report: BatchReport) -> Self:
        def told(name: str) -> int:
            return sum(int(getattr(node, name)) for node in report.nodes)

        return replace(
            self,
            node_rows=_added(self.node_rows, report.routed_rows),
            skewed_rows=_added(self.skewed_rows, report.skewed_rows),
            traffic={kind: total + report.traffic[kind] for kind, total in self.traffic.items()},
            signals=self.signals + sum(source.signals for source in report.sources),
            pulls=self.pulls + told("pulls"),
            pulled_rows=self.pulled_rows + told("pulled_rows"),
            forwarded_rows=self.forwarded_rows + told("forwarded_rows"),
        )

    @property
    def busiest(self) -> tuple[int, float]:
        """The node that got most rows, and their share of all."""
        largest = max(self.node_rows)
        return self.node_rows.index(largest), shares(self.node_rows)[self.node_rows.index(largest)]


def shares(node_rows: Sequence[int]) -> list[float]:
    total = sum(node_rows)
    return [rows / total if total else 0.0 for rows in node_rows]


def _added(totals: tuple[int, ...], more: Sequence[int]) -> tuple[int, ...]:
    """`more` is empty where a batch had nothing of it."""
    return tuple(map(sum, zip(totals, more, strict=True))) if more else totals
