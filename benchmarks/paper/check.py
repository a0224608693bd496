"""Compares the model with measurements of small real nodes, without fitting anything.

`measurements.json` is a list of runs. A run has `nodes`, `mbit`, `policy`, `zipf` (of the probe keys; the build keys
come in turn), `probe`, `build` and `keys`, and what was measured: `rows_per_s`. Absolute speeds are another machine's,
so the check compares how much faster each policy is than `hash` at the same setting. There a build key is unique or
nearly so, which makes few results: rows and links alone decide.
"""

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from balajoin.embedded.workload import zipf_keys
from balajoin.routing.rule import SkewRule
from paper.cost import cost
from paper.parameters import FITTED
from paper.redistribution import redistribute
from paper.tables import plain_table
from paper.workload import Shards, key_hashes

MEASUREMENTS = Path(__file__).parent / "measurements.json"
_SERVICE = SkewRule()  # θ and ε are the service's defaults there


def predicted_s(run: Mapping[str, Any]) -> float:
    """Seconds by the model. Only ratios between policies mean anything."""
    nodes, keys = run["nodes"], run["keys"]
    probe = zipf_keys(run["probe"], keys, run["zipf"], 1)
    build = np.arange(run["build"]) % keys
    data = Shards(
        [np.ascontiguousarray(probe[at::nodes]) for at in range(nodes)],
        [np.ascontiguousarray(build[at::nodes]) for at in range(nodes)],
        key_hashes(keys, 0),
    )
    moved = redistribute(data, run["policy"], _SERVICE, "by home")
    return cost(moved, run["mbit"], FITTED).seconds


def speedups(runs: list[dict[str, Any]]) -> list[tuple[str, float, float]]:
    """Setting and policy, the model's speed-up over `hash`, and the measured one."""
    by_setting: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = defaultdict(dict)
    for run in runs:
        by_setting[tuple(run[name] for name in ("nodes", "mbit", "zipf", "probe", "build", "keys"))][run["policy"]] = (
            run
        )
    found = []
    for setting, by_policy in by_setting.items():
        plain = by_policy.get("hash")
        for policy, run in by_policy.items():
            if plain and policy != "hash":
                title = f"n = {setting[0]}, {setting[1]:g} Mbit/s, z = {setting[2]:g}: {policy}"
                modelled = predicted_s(plain) / predicted_s(run)
                found.append((title, modelled, run["rows_per_s"] / plain["rows_per_s"]))
    return found


def print_check(console: Console, file: Path) -> None:
    if not file.exists():
        console.print(f"no measurements of small nodes to check the model with: {file.name} does not exist")
        return
    table = plain_table("Speed-up over hash on small nodes", ("", "model", "measured", "apart"))
    for title, modelled, measured in speedups(json.loads(file.read_text())):
        table.add_row(title, f"{modelled:.2f}", f"{measured:.2f}", f"{modelled / measured - 1:+.0%}")
    console.print(table)
