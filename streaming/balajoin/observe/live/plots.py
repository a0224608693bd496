"""`balajoin plot`: draws recorded runs. Only this module needs matplotlib."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from balajoin.errors import BalaJoinError, SetupError
from balajoin.observe.live import window
from balajoin.observe.live.moment import Moment
from balajoin.observe.live.recording import read
from balajoin.observe.report import balance_factor

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Runs = dict[str, list[Moment]]
"""The batches of each run in their order, by the run's name in the plots."""

_OURS = "bala-join"
_BLUE, _ORANGE, _QUIET = "#2069c4", "#b3540e", "#5c5b57"
_OTHERS = ("#b3540e", "#0f7d6c", "#7a4bb8", "#8a6d00", "#b0336b", "#3d7a1f", "#5c5b57")
_DASHES = ("-", "--", "-.", ":")
_MARKERS = ("s", "^", "v", "D", "P", "X", "*")
_STYLE: dict[Any, Any] = {
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "font.family": "sans-serif",
    "font.size": 10,
    "svg.fonttype": "none",
    "svg.hashsalt": "balajoin",  # the same run makes the same file
}


def draw(recorded: Sequence[Path], folder: Path) -> Iterator[Path]:
    """Writes the plots and yields the path of each. Runs of several files are drawn together, one for each join."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise SetupError("plot needs matplotlib: pip install 'balajoin[plot]'") from None
    runs = _runs(recorded)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with matplotlib.rc_context(_STYLE):
            for name, picture in _PICTURES.items():
                path = folder / f"{name}.svg"
                figure = Figure(layout="constrained")
                picture(figure, runs)
                figure.savefig(path, metadata={"Date": None, "Title": name.replace("-", " ")})
                yield path
    except OSError as error:
        raise BalaJoinError(f"cannot write to {folder}: {(error.strerror or str(error)).lower()}") from None


def _runs(recorded: Sequence[Path]) -> Runs:
    found: dict[tuple[str, str], list[Moment]] = defaultdict(list)
    for path in recorded:
        for moment in read(path):
            run = found[moment.join, moment.policy]
            if run and run[-1].batch == moment.batch:  # a crash cut the batch short, and the restart repeated it
                run.pop()
            run.append(moment)
    if not found:
        raise BalaJoinError(f"no batch is recorded in {', '.join(map(str, recorded))}")
    for (join, _), moments in found.items():
        if len({len(moment.node_rows) for moment in moments}) > 1:
            raise BalaJoinError(f"{join} was recorded with different numbers of nodes: plot those runs apart")
    return dict(sorted(_named(found), key=lambda run: (_policy(run[1]) == _OURS, _policy(run[1]) != "hash", run[0])))


def _named(found: Mapping[tuple[str, str], list[Moment]]) -> Iterator[tuple[str, list[Moment]]]:
    """Names a run by its policy, and by its join too where several runs have the same policy."""
    same_policy = Counter(policy for _, policy in found)
    for (join, policy), moments in found.items():
        yield policy if same_policy[policy] == 1 else f"{policy} ({join})", moments


def _policy(moments: Sequence[Moment]) -> str:
    return moments[-1].policy


def _rows_by_node(figure: "Figure", runs: Runs) -> None:
    columns = min(len(runs), 4)
    lines = ceil(len(runs) / columns)
    figure.set_size_inches(2.4 * columns + 0.6, 2.2 * lines + 0.5)
    plots = figure.subplots(lines, columns, sharey=True, squeeze=False).flat
    for plot, (name, moments) in zip(plots, runs.items(), strict=False):
        rows = window.node_rows(moments)
        total = sum(rows) or 1
        times = [each * len(rows) / total for each in rows]
        plot.bar(range(len(rows)), times, color=[_ORANGE if each > window.OVERLOADED else _BLUE for each in times])
        plot.axhline(1, color=_QUIET, linewidth=1, linestyle="--")
        plot.set_title(f"{name}: {max(times):.2f}×", fontsize=10)
        if len(rows) <= 16:
            plot.set_xticks(range(len(rows)))
    for plot in list(plots)[len(runs) :]:
        plot.set_visible(False)
    figure.supylabel("rows, in fair shares", fontsize=10)
    figure.supxlabel("node", fontsize=10)


def _balance_over_time(figure: "Figure", runs: Runs) -> None:
    figure.set_size_inches(7.5, 3.6)
    plot = figure.subplots()
    for (name, moments), (colour, dash, _) in zip(runs.items(), _looks(runs), strict=True):
        begin_ms = next((each.ended_ms - each.duration_ms for each in moments if each.rows_in), 0)
        points = [((each.ended_ms - begin_ms) / 1000, each.b_all) for each in moments if each.b_all is not None]
        plot.plot(
            [seconds for seconds, _ in points],
            [b for _, b in points],
            dash,
            color=colour,
            label=name,
            linewidth=2.5 if _policy(moments) == _OURS else 1.5,
            marker="o" if len(points) == 1 else None,
        )
    _mark_epsilon(plot, runs)
    plot.set(xlabel="seconds", ylabel="B of all rows", ylim=(0, 1), xlim=(0, None))
    figure.legend(loc="outside right upper", frameon=False)


def _traffic_and_balance(figure: "Figure", runs: Runs) -> None:
    figure.set_size_inches(7.5, 3.6)
    plot = figure.subplots()
    for (name, moments), (colour, _, marker) in zip(runs.items(), _looks(runs), strict=True):
        moved = sum(window.traffic(moments).values()) / max(sum(each.rows_in for each in moments), 1)
        balance = balance_factor(window.node_rows(moments)) or 0
        plot.scatter([moved], [balance], color=colour, marker=marker, s=70, label=name, zorder=3)
    _mark_epsilon(plot, runs)
    plot.grid(color="#dcdbd6", linewidth=0.7)
    plot.set(xlabel="bytes that left their node, a row", ylabel="B of all rows", ylim=(0, 1))
    plot.set_xlim(0, plot.get_xlim()[1] * 1.05)
    figure.legend(loc="outside right upper", frameon=False)


def _mark_epsilon(plot: "Axes", runs: Runs) -> None:
    limits = {moments[-1].epsilon for moments in runs.values()}
    for epsilon in (limit for limit in limits if limit is not None):
        plot.axhline(epsilon, color=_QUIET, linewidth=1, linestyle="--", label=f"ε = {epsilon:g}")


def _looks(runs: Runs) -> Iterator[tuple[str, str, str]]:
    """Gives each run a colour, a dash and a marker, so that it can be told without the colour."""
    others = zip(cycle(_OTHERS), cycle(_DASHES), cycle(_MARKERS))
    for moments in runs.values():
        yield (_BLUE, "-", "o") if _policy(moments) == _OURS else next(others)


_PICTURES: dict[str, Callable[["Figure", Runs], None]] = {
    "rows-by-node": _rows_by_node,
    "balance-over-time": _balance_over_time,
    "traffic-and-balance": _traffic_and_balance,
}
