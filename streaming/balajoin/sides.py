"""The two streams of a join."""

from typing import Literal

Side = Literal["probe", "build"]
SIDES: tuple[Side, Side] = ("probe", "build")
