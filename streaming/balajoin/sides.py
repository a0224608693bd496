"""The two streams of a join, and the sections in which a node keeps their rows."""

from typing import Literal

Side = Literal["probe", "build"]
SIDES: tuple[Side, Side] = ("probe", "build")

Section = Literal["probe", "build", "fragment"]
SECTIONS: tuple[Section, ...] = ("probe", "build", "fragment")
"""A fragment is a probe row that went to several nodes: on each it meets only that node's share of the build rows."""


def side_of(section: Section) -> Side:
    return "build" if section == "build" else "probe"
