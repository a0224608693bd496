"""Draws the paper's figures from the model, with the published averages beside them where the paper prints any.

The paper's figures have no numbers in its text. So a figure shows our curves, and bars for the averages of its tables.
"""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper import published, ssb
from paper.contenders import BALA_JOIN, BPPR, BPPR_DET, FLOW_JOIN, GRAHJ, PNR, PRPD, SFR, Contender
from paper.experiments import Varied, average, points, throughput, traffic, values
from paper.parameters import MBITS, TABLE_1_NODES

_COLOURS = {
    "BPPR": "#0b6e99",
    "Bala-Join": "#d1495b",
    "PnR": "#e08e1b",
    "PRPD": "#6a8d3f",
    "SFR": "#8c6bb1",
    "GraHJ": "#555555",
    "Flow-Join": "#8c6bb1",
    "BPPR+Det": "#e08e1b",
}
_AXIS: dict[Varied, str] = {
    "bandwidth": "bandwidth, Mbit/s",
    "balance": "balance factor ε",
    "zipf": "Zipf factor z",
    "ratio": "|R|/|S|",
}
_SMALL_RATIOS = (1 / 20, 1 / 10)  # the paper's text speaks of ratios below 0.1
_TABLES_2_AND_3: tuple[Varied, ...] = ("bandwidth", "zipf", "ratio")


def draw_all(folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {
        "strategies": _strategies(),
        "detector": _by_nodes((BPPR, BALA_JOIN, BPPR_DET), "table_2"),
        "solutions": _by_nodes((BALA_JOIN, FLOW_JOIN, GRAHJ), "table_3"),
        "traffic": _traffic(),
        "ssb": _ssb(),
    }
    files = []
    for name, figure in drawn.items():
        file = folder / f"{name}.png"
        figure.savefig(file, dpi=80)
        files.append(file)
    return files


def _strategies() -> Figure:
    """Figure 5 of the paper: throughput and traffic of the strategies, and Table 1's averages."""
    contenders = (BPPR, PNR, PRPD, SFR, GRAHJ)
    varied: tuple[Varied, ...] = ("bandwidth", "balance", "zipf", "ratio")
    figure = Figure(figsize=(14, 8.4), layout="constrained")
    axes = figure.subplots(3, 4)
    for column, one in enumerate(varied):
        at = (*_SMALL_RATIOS, *values(one)) if one == "ratio" else values(one)
        for row, measure in enumerate((throughput, traffic)):
            for who in contenders:
                _line(axes[row][column], who, at, [measure(point, who) for point in points(one, TABLE_1_NODES, at)])
            _finish(axes[row][column], one)
        ours = [average(one, TABLE_1_NODES, who) for who in contenders]
        theirs = [published.cells("table_1")[who.label][column] for who in contenders]
        _bars(axes[2][column], contenders, ours, theirs)
    for row, label in enumerate(("M results/s", "traffic, MB", "mean, M results/s")):
        axes[row][0].set_ylabel(label)
    axes[0][0].legend(frameon=False, fontsize=8)
    figure.suptitle("Strategies that are told the skewed keys, 3 nodes: model (lines, full bars) and paper (pale bars)")
    return figure


def _by_nodes(contenders: Sequence[Contender], table: str) -> Figure:
    """Figures 6, 7 and 8: throughput on 3 and 6 nodes, and the averages of a table."""
    figure = Figure(figsize=(11, 10.5), layout="constrained")
    axes = figure.subplots(4, 3)
    for block, nodes in enumerate((3, 6)):
        for column, one in enumerate(_TABLES_2_AND_3):
            lines, bars = axes[2 * block][column], axes[2 * block + 1][column]
            for who in contenders:
                _line(lines, who, values(one), [throughput(point, who) for point in points(one, nodes)])
            _finish(lines, one)
            ours = [average(one, nodes, who) for who in contenders]
            _bars(bars, contenders, ours, [published.cells(table)[who.label][3 * block + column] for who in contenders])
        axes[2 * block][0].set_ylabel(f"{nodes} nodes: M results/s")
        axes[2 * block + 1][0].set_ylabel(f"{nodes} nodes: mean")
    axes[0][0].legend(frameon=False, fontsize=8)
    figure.suptitle(f"{table.replace('_', ' ').capitalize()}: model (lines, full bars) and paper (pale bars)")
    return figure


def _traffic() -> Figure:
    """Figure 7's other half: traffic of the complete solutions."""
    figure = Figure(figsize=(13, 3.1), layout="constrained")
    axes = figure.subplots(1, 4)
    panels: tuple[tuple[Varied, int], ...] = (("zipf", 3), ("ratio", 3), ("zipf", 6), ("ratio", 6))
    for panel, (one, nodes) in zip(axes, panels, strict=True):
        for who in (BALA_JOIN, FLOW_JOIN, GRAHJ):
            _line(panel, who, values(one), [traffic(point, who) for point in points(one, nodes)])
        _finish(panel, one)
        panel.set_title(f"{nodes} nodes", fontsize=10)
    axes[0].set_ylabel("traffic, MB")
    axes[0].legend(frameon=False, fontsize=8)
    return figure


def _ssb() -> Figure:
    """Figure 9: both joins of SSB-skew. The paper prints no numbers for them."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    axes = figure.subplots(1, 2)
    joins = (("LO_ORDERDATE = D_DATEKEY", ssb.order_dates()), ("LO_SUPPKEY = S_SUPPKEY", ssb.suppliers()))
    for panel, (title, data) in zip(axes, joins, strict=True):
        for label, found in ssb.throughputs(data, MBITS).items():
            panel.plot(MBITS, found, marker="o", markersize=3, color=_COLOURS[label], label=label)
        _finish(panel, "bandwidth")
        panel.set_title(title, fontsize=10)
    axes[0].set_ylabel("M results/s")
    axes[0].legend(frameon=False, fontsize=8)
    return figure


def _line(axes: Axes, who: Contender, at: Sequence[float], found: Sequence[float]) -> None:
    dashed = "--" if who == SFR else "-"  # on three nodes it lies on PnR
    axes.plot(at, found, dashed, marker="o", markersize=3, color=_COLOURS[who.label], label=who.label)


def _finish(axes: Axes, varied: Varied) -> None:
    axes.set_xlabel(_AXIS[varied])
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _bars(axes: Axes, contenders: Sequence[Contender], ours: Sequence[float], theirs: Sequence[float]) -> None:
    for at, (who, mine, published_mean) in enumerate(zip(contenders, ours, theirs, strict=True)):
        colour = _COLOURS[who.label]
        for offset, height, alpha in ((-0.2, mine, 1.0), (0.2, published_mean, 0.4)):
            bar = axes.bar(at + offset, height, 0.38, color=colour, alpha=alpha)
            axes.bar_label(bar, fmt="%.0f", fontsize=7)
    axes.set_xticks(range(len(contenders)), [who.label for who in contenders], fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
