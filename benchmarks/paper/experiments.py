"""The paper's experiments: each varies one setting and leaves the others at the defaults."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Literal

from paper import parameters as given
from paper.contenders import Contender, Run, moved
from paper.cost import cost, traffic_mb
from paper.parameters import Parameters
from paper.workload import Zipf

Varied = Literal["bandwidth", "balance", "zipf", "ratio"]


@dataclass(frozen=True)
class Point:
    nodes: int
    mbit: float = given.MBIT
    balance: float = given.BALANCE
    zipf: float = given.ZIPF
    ratio: float = given.RATIO

    def runs(self, contender: Contender, parameters: Parameters) -> list[Run]:
        """One for each placement. Only the policies that balance depend on ε, so others are routed once."""
        setting = Zipf(
            self.nodes,
            self.zipf,
            self.ratio,
            rows=given.ROWS,
            keys=given.KEYS,
            clustering=parameters.clustering,
        )
        balances = contender.policy in ("bppr", "bppr-det", "bala-join")
        balance = self.balance if balances else given.BALANCE
        return [
            Run(contender, replace(setting, seed=seed), parameters.threshold, balance)
            for seed in range(given.PLACEMENTS)
        ]


_VALUES: dict[Varied, tuple[float, ...]] = {
    "bandwidth": given.MBITS,
    "balance": given.BALANCES,
    "zipf": given.ZIPFS,
    "ratio": given.RATIOS,
}
_FIELDS: dict[Varied, str] = {"bandwidth": "mbit", "balance": "balance", "zipf": "zipf", "ratio": "ratio"}


def values(varied: Varied) -> tuple[float, ...]:
    return _VALUES[varied]


def points(varied: Varied, nodes: int, at: Sequence[float] | None = None) -> list[Point]:
    return [replace(Point(nodes), **{_FIELDS[varied]: value}) for value in at or _VALUES[varied]]


def throughput(point: Point, contender: Contender, parameters: Parameters = given.FITTED) -> float:
    """Millions of results a second, mean of all placements."""
    return mean(
        cost(moved(run), point.mbit, parameters, contender.detection).throughput
        for run in point.runs(contender, parameters)
    )


def traffic(point: Point, contender: Contender, parameters: Parameters = given.FITTED) -> float:
    """Megabytes, mean of all placements."""
    return mean(traffic_mb(moved(run), parameters) for run in point.runs(contender, parameters))


def average(varied: Varied, nodes: int, contender: Contender, parameters: Parameters = given.FITTED) -> float:
    """Throughput as the paper's tables give it: the mean over an experiment."""
    return mean(throughput(point, contender, parameters) for point in points(varied, nodes))
