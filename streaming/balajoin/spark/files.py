"""Where the files of the repository's `kafka/` folder are."""

from pathlib import Path

_IN_WHEEL = Path(__file__).parents[1] / "_kafka"
_IN_CHECKOUT = Path(__file__).parents[3] / "kafka"


def kafka_file(name: str) -> Path:
    return (_IN_WHEEL if _IN_WHEEL.is_dir() else _IN_CHECKOUT) / name
