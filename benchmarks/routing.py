"""Rows per second that one core routes: the sketch alone, all of Bala-Join and every policy, against plain hashing.

Run with `python benchmarks/routing.py`; it needs neither Kafka nor Spark. Each time is the least CPU time of a few
runs, in turns, so other work on the machine counts little. Each ratio is of times from the same runs.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import get_args

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from balajoin.core.hashing import homes
from balajoin.embedded.workload import zipf_keys
from balajoin.routing.policies import make
from balajoin.routing.rule import PolicyName, SkewRule
from balajoin.routing.sketch import Sketch

_NODES = (3, 6, 12, 24)
_EXPONENTS = (0.0, 1.25)
_RUNS = 5
_BATCH_ROWS = 100_000
_RULE = SkewRule()

Route = Callable[[NDArray[np.int64]], object]


def main() -> None:
    options = _options()
    console = Console(width=110)
    streams = {exponent: _stream(options.rows, options.keys, exponent) for exponent in _EXPONENTS}
    table = Table("keys", "nodes", "homes", "sketch", "bala-join", "bala-join takes", "sketch takes", title="M rows/s")
    for exponent, hashes in streams.items():
        for nodes in _NODES:
            table.add_row(f"zipf {exponent:g}", str(nodes), *_against_homes(hashes, nodes))
    console.print(table)
    console.print(_policies(streams, 24))
    console.print(_state(streams[1.25], 24))


def _stream(rows: int, keys: int, exponent: float) -> NDArray[np.int64]:
    names = np.random.default_rng(0).integers(-(1 << 63), 1 << 63, keys)
    hashes = names[zipf_keys(rows, keys, exponent, seed=1)]
    hashes.flags.writeable = False  # as from Arrow
    return hashes


def _against_homes(hashes: NDArray[np.int64], nodes: int) -> Sequence[str]:
    plain, sketch, whole = _seconds(
        hashes,
        lambda rows: homes(rows, nodes),
        Sketch(_RULE.counters).count,
        make("bala-join", nodes, 0, _RULE).assign,
    )
    speeds = [f"{len(hashes) / seconds / 1e6:.1f}" for seconds in (plain, sketch, whole)]
    return [*speeds, f"{whole / plain:.1f} x homes", f"{sketch / whole:.0%} of that"]


def _policies(streams: dict[float, NDArray[np.int64]], nodes: int) -> Table:
    table = Table("policy", *(f"zipf {exponent:g}" for exponent in streams), title=f"M rows/s at {nodes} nodes")
    for name in get_args(PolicyName):
        speeds = []
        for hashes in streams.values():
            rule = SkewRule(keys=tuple(np.unique(hashes[:20]).tolist())) if name == "bppr" else _RULE
            (seconds,) = _seconds(hashes, make(name, nodes, 0, rule).assign)
            speeds.append(f"{len(hashes) / seconds / 1e6:.1f}")
        table.add_row(name, *speeds)
    table.add_row("bala-join by work", *(_by_work(hashes, nodes) for hashes in streams.values()))
    return table


def _by_work(hashes: NDArray[np.int64], nodes: int) -> str:
    """Every key has build rows, so that pairs count too."""
    policy = make("bala-join", nodes, 0, replace(_RULE, measure="work", window_us=1_000_000))
    policy.note_build(hashes[:_BATCH_ROWS], np.arange(_BATCH_ROWS))
    (seconds,) = _seconds(hashes, policy.assign)
    return f"{len(hashes) / seconds / 1e6:.1f}"


def _state(hashes: NDArray[np.int64], nodes: int) -> str:
    policy = make("bala-join", nodes, 0, _RULE)
    policy.assign(hashes)
    state = policy.state()
    begin = time.process_time()
    for _ in range(100):
        policy.state()
    write_us = (time.process_time() - begin) * 1e4
    begin = time.process_time()
    for _ in range(100):
        make("bala-join", nodes, 0, _RULE, state)
    read_us = (time.process_time() - begin) * 1e4
    return f"state of bala-join: {len(state):,} bytes, written in {write_us:.0f} µs, restored in {read_us:.0f} µs"


def _seconds(hashes: NDArray[np.int64], *routes: Route) -> list[float]:
    """The least CPU seconds of each route in a few runs, in turns, after a run that compiles."""
    for route in routes:
        route(hashes[:_BATCH_ROWS])
    times = [[_once(hashes, route) for route in routes] for _ in range(_RUNS)]
    return [min(column) for column in zip(*times, strict=True)]


def _once(hashes: NDArray[np.int64], route: Route) -> float:
    begin = time.process_time()
    for start in range(0, len(hashes), _BATCH_ROWS):
        route(hashes[start : start + _BATCH_ROWS])
    return time.process_time() - begin


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    return parser.parse_args()


if __name__ == "__main__":
    main()
