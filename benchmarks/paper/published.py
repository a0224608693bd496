"""Reads `published.toml`."""

import tomllib
from pathlib import Path
from typing import Any

_TABLES: dict[str, Any] = tomllib.loads((Path(__file__).parent / "published.toml").read_text())

Cells = dict[str, list[float]]
"""By contender, a number for each column."""


def columns(table: str) -> list[str]:
    return list(_TABLES[table]["columns"])


def cells(table: str) -> Cells:
    return {name: list(map(float, row)) for name, row in _TABLES[table]["cells"].items()}


def totals() -> dict[str, float]:
    return {name: float(total) for name, total in _TABLES["table_1"]["total"].items()}


def number(table: str, name: str) -> float:
    return float(_TABLES[table][name])
