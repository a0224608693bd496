"""The two streams of a join, the sections in which rows reach a node, and the shelves on which a node keeps them."""

from typing import Literal, get_args

Side = Literal["probe", "build"]
SIDES: tuple[Side, Side] = ("probe", "build")

Section = Literal["probe", "build", "fragment"]
SECTIONS: tuple[Section, ...] = ("probe", "build", "fragment")
"""A fragment is a probe row that went to several nodes: on each it meets only that node's share of the build rows."""

Shelf = Literal[
    "probe", "build", "fragment", "unmatched_probe", "unmatched_build", "met_probe", "met_build", "overdue_build"
]
SHELVES: tuple[Shelf, ...] = get_args(Shelf)
"""Their order is part of the state's format. `compute.unmatched` and `compute.build_side` explain the last five."""


def side_of(section: Section) -> Side:
    return "build" if section == "build" else "probe"
