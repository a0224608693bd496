"""`python -m geo.report FILE…`: what several runs of `make geo` have shown, in one table, a figure and a file.

The figure shows rows a second of one load against the number of nodes. The file is what `paper.check` compares the
model with, which has the paper's Bala-Join.
"""

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

from matplotlib.figure import Figure
from rich.console import Console

from balajoin.routing.rule import PolicyName
from geo.outcome import HostUse, Outcome, Placement, StageTime, table

_LOAD = re.compile(r"(?P<probe_keys>[a-z]+(?:-[a-z]+)*(?:-[\d.]+)?)-(?P<build>\d+)-(?P<probe>\d+)")
_POLICIES = {name: name for name in get_args(PolicyName)} | {"bala-join": None, "bala-join by rows": "bala-join"}
_COLOURS = ("#d1495b", "#0b6e99", "#e08e1b", "#6a8d3f", "#8c6bb1", "#555555")


def read(files: Iterable[Path]) -> tuple[list[Outcome], list[str]]:
    """All outcomes, and the machines they were measured on."""
    outcomes, machines = [], []
    for file in files:
        content = json.loads(file.read_text())
        machines.append(content["machine"])
        outcomes += [_outcome(one) for one in content["outcomes"]]
    return outcomes, sorted(set(machines))


def _outcome(written: Mapping[str, Any]) -> Outcome:
    known = {field.name for field in fields(Outcome)}
    given = {name: value for name, value in written.items() if name in known}
    given["workers"] = tuple(given["workers"])
    given["hosts"] = [HostUse(**host) for host in given["hosts"]]
    given["stages"] = [StageTime(**stage) for stage in given["stages"]]
    given["placement"] = given["placement"] and Placement(**given["placement"])
    return Outcome(**given)


def measurements(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """The runs that the model of the paper's cluster can be compared with: Zipf's probe keys, and unique build keys."""
    found = []
    for one in outcomes:
        policy = _POLICIES.get(one.contender)
        load = _LOAD.fullmatch(one.load)
        keys, _, zipf = load["probe_keys"].rpartition("-") if load else ("", "", "")
        if load and keys == "zipf" and policy and one.rows_per_s and not one.fault:
            (size,) = set(one.workers)
            found.append(
                {
                    "nodes": len(one.workers),
                    "mbit": float(size.split(", ")[1].split()[0]),
                    "policy": policy,
                    "zipf": float(zipf),
                    "probe": int(load["probe"]),
                    "build": int(load["build"]),
                    "keys": int(load["build"]),
                    "rows_per_s": one.rows_per_s,
                }
            )
    return found


def draw(outcomes: Iterable[Outcome], load: str, contenders: Sequence[str], file: Path) -> None:
    """Rows a second of one load against the number of nodes."""
    speeds: dict[str, dict[int, float]] = defaultdict(dict)
    for one in outcomes:
        if one.load.startswith(f"{load}-") and one.rows_per_s and not one.fault:
            speeds[one.contender][len(one.workers)] = one.rows_per_s
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for contender, colour in zip(contenders, _COLOURS, strict=False):
        if contender == "hash" and 1 in speeds["bala-join"]:
            speeds["hash"].setdefault(1, speeds["bala-join"][1])  # on one node they do the same
        by_nodes = sorted(speeds[contender].items())
        nodes, rows = zip(*by_nodes, strict=True)
        axes.plot(nodes, [value / 1000 for value in rows], "o-", color=colour, label=contender)
    axes.set(xlabel="nodes", ylabel="thousand rows a second", ylim=(0, None))
    axes.set_xticks(sorted({nodes for of_one in speeds.values() for nodes in of_one}))
    axes.grid(alpha=0.3)
    axes.legend()
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m geo.report", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="what `make geo` wrote")
    parser.add_argument("--figure", type=Path, help="against the number of nodes")
    parser.add_argument("--load", default="one-key", help="of the figure")
    parser.add_argument("--contenders", nargs="+", default=["bala-join", "hash"], help="of the figure")
    parser.add_argument("--measurements", type=Path)
    options = parser.parse_args()
    outcomes, machines = read(options.files)
    Console(width=230, soft_wrap=True).print(table(outcomes, "; ".join(machines)))
    if options.figure:
        draw(outcomes, options.load, options.contenders, options.figure)
    if options.measurements:
        options.measurements.write_text(json.dumps(measurements(outcomes), indent=1) + "\n")


if __name__ == "__main__":
    main()
