"""Converts durations as people write them ("5 min") to and from whole milliseconds."""

import re
from difflib import get_close_matches
from fractions import Fraction

_UNITS_MS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1_000),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}
_CANONICAL_UNITS = ("ms", "s", "min", "h", "day")
_LONGEST_MS = 100 * 365 * 86_400_000  # event time ± a duration must stay far inside 64 bits of milliseconds
_DURATION = re.compile(r"\s*(?P<number>[+-]?[0-9]{1,30}(?:\.[0-9]{1,30})?)\s*(?P<unit>[A-Za-zµ]*)\s*")

EXAMPLES = '"500 ms", "10 s", "5 min", "2 h" or "1 day"'


class DurationError(ValueError):
    """Says what is wrong and what to write instead. It never repeats the text, which may have come from a secret."""

    def __init__(self, message: str, suggestion: str) -> None:
        super().__init__(message)
        self.message = message
        self.suggestion = suggestion


def parse_ms(written: object) -> int:
    if isinstance(written, int | float) and not isinstance(written, bool):
        number = 5 if isinstance(written, int) and written.bit_length() > 128 else written
        raise DurationError("a number without a unit", f'write "{number} s" or "{number} min", with the quotes')
    if not isinstance(written, str):
        raise DurationError("not a duration", f"write {EXAMPLES}")
    match = _DURATION.fullmatch(written)
    if match is None:
        raise DurationError("not a duration", f"write a number and a unit: {EXAMPLES}")
    unit = match["unit"]
    if not unit:
        raise DurationError("a number without a unit", f"add a unit: {EXAMPLES}")
    unit_ms = _UNITS_MS.get(unit.lower())
    if unit_ms is None:
        near = get_close_matches(unit.lower(), _UNITS_MS, n=1)
        raise DurationError("unknown unit", f'did you mean "{near[0]}"?' if near else f"write {EXAMPLES}")
    exact_ms = Fraction(match["number"]) * unit_ms
    if exact_ms.denominator != 1:
        raise DurationError("finer than a millisecond", "round it to whole milliseconds")
    if abs(exact_ms) > _LONGEST_MS:
        raise DurationError("longer than 100 years", "write a shorter one")
    return int(exact_ms)


def format_ms(duration_ms: int) -> str:
    """The shortest text that `parse_ms` reads back to the same value."""
    unit = next(unit for unit in reversed(_CANONICAL_UNITS) if duration_ms % _UNITS_MS[unit] == 0)
    return f"{duration_ms // _UNITS_MS[unit]} {unit}" if duration_ms else "0 ms"
