"""The joins next to each other: one line a figure, one text a join. The picture and the summary show the same."""

from collections.abc import Callable, Sequence

from balajoin.demo.figures import Figures
from balajoin.observe.live.drawing import size
from balajoin.observe.report import balance_factor

NONE = "–"

Comparison = list[tuple[str, list[str]]]


def comparison(joins: Sequence[Figures]) -> Comparison:
    def each(text: Callable[[Figures], str]) -> list[str]:
        return [text(figures) for figures in joins]

    return [
        ("busiest node", each(busiest)),
        ("B, all rows", each(lambda figures: _factor(figures.node_rows))),
        ("B, skewed rows", each(lambda figures: _factor(figures.skewed_rows))),
        ("traffic", each(lambda figures: size(sum(figures.traffic.values())))),
        *[(f"  {kind}", [size(figures.traffic[kind]) for figures in joins]) for kind in joins[0].traffic],
        ("signals", each(lambda figures: _count(figures.signals))),
        ("pulls", each(lambda figures: _count(figures.pulls))),
        ("replica rows", each(replica_rows)),
    ]


def busiest(figures: Figures) -> str:
    if not any(figures.node_rows):
        return NONE
    _, share = figures.busiest
    return f"{share:.0%} of rows, {share * len(figures.node_rows):.1f}× its share"


def replica_rows(figures: Figures) -> str:
    if not figures.pulls:
        return NONE
    return f"{figures.pulled_rows:,} pulled, {figures.forwarded_rows:,} forwarded"


def node_list(nodes: Sequence[int]) -> str:
    return ("node " if len(nodes) == 1 else "nodes ") + " ".join(map(str, sorted(nodes)))


def explanation(balance: float) -> str:
    return (
        "B = (most − least) / most rows on a node; for the rows of skewed keys,\n"
        f"bala-join aims at {balance} or less. Traffic is what left the node it was on."
    )


def _factor(node_rows: Sequence[int]) -> str:
    factor = balance_factor(node_rows)
    return NONE if factor is None else f"{factor:.2f}"


def _count(number: int) -> str:
    return f"{number:,}" if number else NONE
