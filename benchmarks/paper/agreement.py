"""What counts as agreement with the paper: the same ranking, and ratios between contenders within 10 %."""

from itertools import pairwise

from paper.published import Cells

TOLERANCE = 0.1


def same_ranking(ours: Cells, theirs: Cells, column: int) -> bool:
    """Whether the published contenders stand in the same order. A tie is not an order."""
    ranked = sorted(theirs, key=lambda label: -theirs[label][column])
    found = [ours[label][column] for label in ranked]
    return all(better > worse for better, worse in pairwise(found))


def widest_gap(ours: Cells, theirs: Cells, column: int, base: str) -> float:
    """How far the worst ratio to `base` is from the published one: 0.1 means 10 % more or less."""

    def ratio(cells: Cells, label: str) -> float:
        return cells[label][column] / cells[base][column]

    return max(abs(ratio(ours, label) / ratio(theirs, label) - 1) for label in theirs)
