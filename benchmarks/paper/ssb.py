"""The two joins of SSB-skew: `lineorder` with `date`, and with `supplier`, on 24 nodes.

`lineorder` has its 60,000,000 rows of scale factor 10 divided by ten. The most frequent key has the share that the
paper states, and shares fall as a Zipf law with the exponent that gives this share. Rows of one order date lie
together, as the paper says: each node holds a range of dates. Suppliers lie anywhere.
"""

from collections.abc import Sequence

import numpy as np
from rich.console import Console

from balajoin.embedded.workload import zipf_keys
from balajoin.routing.rule import SkewRule
from paper import published
from paper.contenders import BALA_JOIN, FLOW_JOIN, GRAHJ, Contender
from paper.cost import cost, traffic_mb
from paper.parameters import FITTED, MBIT, Parameters
from paper.redistribution import Redistribution, redistribute
from paper.tables import plain_table
from paper.workload import Shards, key_hashes

NODES = 24
_ROWS = 6_000_000
_DATES, _SUPPLIERS = 2_556, 20_000
_CONTENDERS = (BALA_JOIN, FLOW_JOIN, GRAHJ)


def exponent(keys: int, share: float) -> float:
    """The Zipf exponent at which the most frequent of so many keys has this share."""
    low, high = 0.0, 4.0
    for _ in range(60):
        middle = (low + high) / 2
        if 1 / (1 / np.arange(1, keys + 1) ** middle).sum() < share:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def order_dates() -> Shards:
    """Which dates are the frequent ones is chance."""
    frequency = zipf_keys(_ROWS, _DATES, exponent(_DATES, published.number("ssb", "order_date")), 1)
    dates = np.sort(np.random.default_rng(5).permutation(_DATES)[frequency])
    return Shards(np.array_split(dates, NODES), _spread(np.arange(_DATES)), key_hashes(_DATES, 0))


def suppliers() -> Shards:
    keys = zipf_keys(_ROWS, _SUPPLIERS, exponent(_SUPPLIERS, published.number("ssb", "supplier")), 1)
    return Shards(_spread(keys), _spread(np.arange(_SUPPLIERS)), key_hashes(_SUPPLIERS, 0))


def _spread(numbers: np.ndarray) -> list[np.ndarray]:
    return [np.ascontiguousarray(numbers[at::NODES]) for at in range(NODES)]


def moved(data: Shards, contender: Contender, parameters: Parameters = FITTED) -> Redistribution:
    rule = SkewRule(threshold=parameters.threshold, counters=max(1024, round(4 / parameters.threshold)))
    return redistribute(data, contender.policy, rule, contender.path, contender.by_origin)


def throughputs(data: Shards, mbits: Sequence[float] = (MBIT,)) -> dict[str, list[float]]:
    outcomes = {who: moved(data, who) for who in _CONTENDERS}
    return {
        who.label: [cost(one, mbit, FITTED, who.detection).throughput for mbit in mbits]
        for who, one in outcomes.items()
    }


def print_joins(console: Console, parameters: Parameters) -> None:
    for title, data in (("LO_ORDERDATE = D_DATEKEY", order_dates()), ("LO_SUPPKEY = S_SUPPKEY", suppliers())):
        table = plain_table(
            f"SSB-skew, {NODES} nodes: {title}", ("", "M results/s", "traffic MB", "busiest node", "skewed")
        )
        for who in _CONTENDERS:
            one = moved(data, who, parameters)
            table.add_row(
                who.label,
                f"{cost(one, MBIT, parameters, who.detection).throughput:.2f}",
                f"{traffic_mb(one, parameters):.1f}",
                f"{one.taken.max() / one.taken.mean():.2f}",
                f"{one.skewed.sum() / data.probe_rows:.1%}",
            )
        console.print(table)
