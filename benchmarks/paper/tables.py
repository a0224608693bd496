"""Prints the paper's three tables: ours beside the published numbers, and whether they agree."""

from collections.abc import Sequence

from bench import machine
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from paper import published
from paper.agreement import TOLERANCE, same_ranking, widest_gap
from paper.contenders import (
    BALA_JOIN,
    BALA_JOIN_BY_HOME,
    BPPR,
    BPPR_DET,
    FLOW_JOIN,
    FLOW_JOIN_BY_ORIGIN,
    GRAHJ,
    PNR,
    PRPD,
    SFR,
    SFR_BY_ORIGIN,
    Contender,
)
from paper.experiments import Point, Varied, average, points, throughput, traffic
from paper.parameters import TABLE_1_NODES, Parameters
from paper.published import Cells

_TABLE_1: tuple[Varied, ...] = ("bandwidth", "balance", "zipf", "ratio")
_TABLES_2_AND_3: tuple[tuple[Varied, int], ...] = tuple(
    (varied, nodes) for nodes in (3, 6) for varied in ("bandwidth", "zipf", "ratio")
)


def print_all(console: Console, parameters: Parameters) -> None:
    print_table_1(console, parameters)
    print_traffic(console, parameters)
    print_balance(console, parameters)
    print_table_2(console, parameters)
    print_table_3(console, parameters)


def print_table_1(console: Console, parameters: Parameters) -> None:
    cells, totals = published.cells("table_1"), published.totals()
    ours = table_1((BPPR, PNR, PRPD, SFR, GRAHJ, SFR_BY_ORIGIN), parameters)
    for label in ours:
        ours[label].append(sum(ours[label]))
    theirs = {label: [*row, totals[label]] for label, row in cells.items()}
    _print(console, f"Table 1, {TABLE_1_NODES} nodes (fitted, but for SFR)", [*_TABLE_1, "total"], ours, theirs, "BPPR")


def table_1(contenders: Sequence[Contender], parameters: Parameters) -> Cells:
    return {who.label: [average(varied, TABLE_1_NODES, who, parameters) for varied in _TABLE_1] for who in contenders}


def print_table_2(console: Console, parameters: Parameters) -> None:
    ours = _averages((BALA_JOIN, BPPR_DET, BPPR, BALA_JOIN_BY_HOME), parameters)
    _print(console, "Table 2", published.columns("table_2"), ours, published.cells("table_2"), "Bala-Join")


def print_table_3(console: Console, parameters: Parameters) -> None:
    ours = _averages((BALA_JOIN, FLOW_JOIN, GRAHJ, FLOW_JOIN_BY_ORIGIN, BALA_JOIN_BY_HOME), parameters)
    _print(console, "Table 3", published.columns("table_3"), ours, published.cells("table_3"), "Bala-Join")


def _averages(contenders: Sequence[Contender], parameters: Parameters) -> Cells:
    return {
        who.label: [average(varied, nodes, who, parameters) for varied, nodes in _TABLES_2_AND_3] for who in contenders
    }


def print_traffic(console: Console, parameters: Parameters) -> None:
    own = traffic(Point(TABLE_1_NODES), BPPR, parameters)
    table = plain_table("BPPR's traffic as a multiple, default settings", ("of", "ours", "published", "apart"))
    for who in (PNR, PRPD, SFR, SFR_BY_ORIGIN, GRAHJ):
        ratio = own / traffic(Point(TABLE_1_NODES), who, parameters)
        try:
            theirs = published.number("traffic", who.label)
            table.add_row(who.label, f"{ratio:.2f}", f"{theirs:.2f}", f"{ratio / theirs - 1:+.0%}")
        except KeyError:
            table.add_row(who.label, f"{ratio:.2f}", "above 1" if who != SFR_BY_ORIGIN else "", "")
    console.print(table)


def print_balance(console: Console, parameters: Parameters) -> None:
    table = plain_table("BPPR by ε, default settings", ("ε", "M results/s", "traffic MB"))
    found = {point.balance: throughput(point, BPPR, parameters) for point in points("balance", TABLE_1_NODES)}
    for point in points("balance", TABLE_1_NODES):
        table.add_row(f"{point.balance:g}", f"{found[point.balance]:.0f}", f"{traffic(point, BPPR, parameters):.2f}")
    usual = Point(TABLE_1_NODES)
    hashed = throughput(usual, GRAHJ, parameters), traffic(usual, GRAHJ, parameters)
    table.add_row("GraHJ", f"{hashed[0]:.0f}", f"{hashed[1]:.2f}")
    console.print(table)
    best = max(found, key=lambda balance: found[balance])
    console.print(f"best ε: {best:g}; published: {published.number('balance_factor', 'best'):g}\n")


def _print(console: Console, title: str, columns: Sequence[str], ours: Cells, theirs: Cells, base: str) -> None:
    table = plain_table(f"{title}: M results/s, ours (published); then as a multiple of {base}", ("", *columns))
    for label, row in ours.items():
        shown = [f"{mine:.0f}" for mine in row]
        ratios = [f"{mine / of:.2f}" for mine, of in zip(row, ours[base], strict=True)]
        if label in theirs:
            published_ratios = [it / of for it, of in zip(theirs[label], theirs[base], strict=True)]
            shown = [f"{mine} ({it:.0f})" for mine, it in zip(shown, theirs[label], strict=True)]
            ratios = [f"{mine} ({it:.2f})" for mine, it in zip(ratios, published_ratios, strict=True)]
        table.add_row(label, *(f"{cell} × {ratio}" for cell, ratio in zip(shown, ratios, strict=True)))
    at = range(len(columns))
    table.add_section()
    fitted = {label: row for label, row in theirs.items() if label != "SFR"}
    if fitted != theirs:
        without = ("yes" if same_ranking(ours, fitted, column) else "no" for column in at)
        table.add_row("same ranking without SFR", *without)
        gaps = (f"{widest_gap(ours, fitted, column, base):.0%}" for column in at)
        table.add_row("widest gap without SFR", *gaps)
    table.add_row("same ranking", *("yes" if same_ranking(ours, theirs, column) else "no" for column in at))
    all_gaps = [widest_gap(ours, theirs, column, base) for column in at]
    table.add_row("widest gap", *(f"{gap:.0%}" for gap in all_gaps))
    table.add_row(f"within {TOLERANCE:.0%}", *("yes" if gap <= TOLERANCE else "no" for gap in all_gaps))
    console.print(table)


def describe(seconds: float) -> str:
    return f"{machine()}; {seconds:.0f} s"


def plain_table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    return table
