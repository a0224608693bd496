"""Figures as characters."""

from collections.abc import Sequence

_EIGHTHS_ACROSS = " ▏▎▍▌▋▊▉█"
_EIGHTHS_UP = "▁▂▃▄▅▆▇█"
_UNITS = ("B", "kB", "MB", "GB", "TB")

OVERLOADED = 1.3
"""Times its fair share: a node that has more is marked."""


def bar(part: float, width: int) -> str:
    """A bar that is full at 1, in eighths of a character."""
    full, eighths = divmod(round(min(max(part, 0.0), 1.0) * width * 8), 8)
    return ("█" * full + _EIGHTHS_ACROSS[eighths]).rstrip() if eighths else "█" * full


def spark_line(parts: Sequence[float]) -> str:
    """A character each, the highest at 1."""
    return "".join(_EIGHTHS_UP[min(int(min(max(part, 0.0), 1.0) * 8), 7)] for part in parts)


def size(count: float) -> str:
    for unit in _UNITS:
        if count < 1000 or unit == _UNITS[-1]:
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
