"""Finds the five free parameters by Table 1 and the traffic that section 5.2 states, and by nothing else.

SFR is left out: on three nodes its matrix has one row, so what the paper did there cannot be told from its text.
The error is the root mean square of the logarithms of ours over published (0.1 means about 10 %), once for the cells,
once for the totals and once for the traffic, added up. The two costs of detection are fitted by one row of Table 2.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import exp, log, sqrt
from statistics import mean

from rich.console import Console

from paper import published
from paper.contenders import BALA_JOIN, BPPR, BPPR_DET, GRAHJ, PNR, PRPD, Contender
from paper.experiments import Point, Varied, average, traffic
from paper.parameters import TABLE_1_NODES, Parameters

_FITTED_BY = (BPPR, PNR, PRPD, GRAHJ)
_COLUMNS: tuple[Varied, ...] = ("bandwidth", "balance", "zipf", "ratio")
_THRESHOLDS = (0.01, 0.003, 0.001)
_CLUSTERINGS = (0.0, 0.1, 0.2, 0.3, 0.4)
_FIRST_STEP, _STEPS = 2.0, 6
_HALVINGS = 20
# One where the processors set the pace, and one where the links do: the error has a minimum near each.
_FIRST_GUESSES = (
    Parameters(row_bytes=20.0, row_us=10.0, results_per_us=400.0),
    Parameters(row_bytes=500.0, row_us=5.0, results_per_us=100.0),
)


def logarithms(parameters: Parameters) -> tuple[list[float], list[float], list[float]]:
    """Of ours over published: of the cells, of the totals, and of both traffic ratios."""
    published_cells, published_totals = published.cells("table_1"), published.totals()
    cells, totals = [], []
    for who in _FITTED_BY:
        ours = [average(column, TABLE_1_NODES, who, parameters) for column in _COLUMNS]
        cells += [log(mine / theirs) for mine, theirs in zip(ours, published_cells[who.label], strict=True)]
        totals.append(log(sum(ours) / published_totals[who.label]))
    own = traffic(Point(TABLE_1_NODES), BPPR, parameters)
    ratios = [
        log(own / traffic(Point(TABLE_1_NODES), who, parameters) / published.number("traffic", who.label))
        for who in (PNR, PRPD)
    ]
    return cells, totals, ratios


def scaled(parameters: Parameters) -> tuple[float, Parameters]:
    """The error, and the parameters at the speed that fits best: all throughputs grow with the speed of all parts."""
    cells, totals, ratios = logarithms(parameters)
    shift = mean(totals)
    error = _rms([one - shift for one in cells]) + _rms([one - shift for one in totals]) + _rms(ratios)
    slower = exp(shift)
    return error, replace(
        parameters,
        row_bytes=parameters.row_bytes * slower,
        row_us=parameters.row_us * slower,
        results_per_us=parameters.results_per_us / slower,
    )


def _rms(numbers: Sequence[float]) -> float:
    return sqrt(mean(number**2 for number in numbers))


def fit(console: Console) -> Parameters:
    best: tuple[float, Parameters] | None = None
    for threshold, clustering, guess in product(_THRESHOLDS, _CLUSTERINGS, _FIRST_GUESSES):
        found = _descend(replace(guess, threshold=threshold, clustering=clustering))
        console.print(f"θ = {threshold:g}, clustering = {clustering:g}: error {found[0]:.3f}, {_shown(found[1])}")
        if best is None or found[0] < best[0]:
            best = found
    assert best is not None
    return with_detection(best[1])


def with_detection(parameters: Parameters) -> Parameters:
    """Adds the costs of detection at which the first row of Table 2 has its published ratios."""
    cells = published.cells("table_2")
    base = average("bandwidth", 3, BPPR, parameters)

    def solved(name: str, who: Contender, known: Parameters) -> Parameters:
        wanted = base * cells[who.label][0] / cells["BPPR"][0]
        low, high = 0.0, parameters.row_us
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if average("bandwidth", 3, who, replace(known, **{name: middle})) > wanted:
                low = middle
            else:
                high = middle
        return replace(known, **{name: (low + high) / 2})

    return solved("first_pass_us", BPPR_DET, solved("detect_us", BALA_JOIN, parameters))


def _descend(parameters: Parameters) -> tuple[float, Parameters]:
    """Tries a step up and down for bytes and CPU time of a row, and halves the step where neither helps."""
    best, step = scaled(parameters), _FIRST_STEP
    for _ in range(_STEPS):
        while True:
            tried = [
                scaled(replace(best[1], **{name: getattr(best[1], name) * factor}))
                for name in ("row_bytes", "row_us")
                for factor in (step, 1 / step)
            ]
            better = min(tried, key=lambda one: one[0])
            if better[0] >= best[0] - 1e-6:
                break
            best = better
        step = sqrt(step)
    return best


def _shown(parameters: Parameters) -> str:
    return (
        f"{parameters.row_bytes:.1f} bytes and {parameters.row_us:.2f} µs a row, "
        f"{parameters.results_per_us:.1f} results a µs"
    )
