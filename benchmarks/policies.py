"""What each policy does to a skewed join: load of the busiest node, balance, traffic, work and CPU time.

Run with `make bench`; needs neither Kafka nor Spark, see `cluster`. Counts are exact; only CPU times vary.

- *rows*, *work* and *CPU* are the busiest node's: its share of the total, and that times n, where 1.00 is perfectly
  even. Work is rows taken in and pairs made, CPU is of sources and nodes, and rows/s is of n nodes with a core each, as
  fast as the busiest of them.
- *B* is (max − min) / max over the nodes, of the probe rows of all keys whose share is in truth above θ, wherever they
  go: the same rows for every policy, so that it can be told of `hash` too. *B sent* is of the rows that a policy itself
  sent as skewed, which is the paper's B.
- *MB* is what leaves its node, uncompressed: source i and node i mod n are one machine. Signals include the promises
  that answer them.
"""

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

from bench import FLOW_JOIN_NOTE, machine
from cluster import Cluster, Outcome, Scenario, balance_factor, simulate
from rich.box import SIMPLE
from rich.console import Console
from rich.progress import Progress, TaskID
from rich.table import Table

from balajoin.routing.rule import PolicyName

_NODES = (2, 4, 8)
_EXPONENTS = (0.0, 1.0, 1.25, 1.5, None)
_POLICIES: tuple[PolicyName, ...] = get_args(PolicyName)
_KINDS = ("probe", "build", "replicas", "signals")
_NARROW_US = 2_000  # both sides Zipf: any wider, and pairs of the hottest key alone would fill the memory
_PLACEMENTS = (0, 1, 2)  # which nodes hot keys have their homes at is luck


def main() -> None:
    options = _options()
    console = Console(width=160)
    base = Scenario(
        4, 1.25, ratio=options.ratio, batches=options.batches, batch_rows=options.batch_rows, keys=options.keys
    )
    grid = [replace(base, nodes=nodes, zipf=zipf) for zipf in _EXPONENTS for nodes in _NODES]
    variants = _traffic_variants(base)
    if options.uniform_only:
        grid, variants = [], []
    with Progress(console=console, transient=True) as progress:
        runs = len(grid) * len(_POLICIES) + 2 * (options.rounds + 1) + len(variants) * len(_PLACEMENTS) * 2
        task = progress.add_task("", total=runs)
        for policy in _POLICIES:  # compiles
            simulate(replace(base, batches=1), policy)
        for scenario in grid:
            console.print(_effect(scenario, progress, task))
        console.print(_overhead(replace(base, zipf=0.0), options.rounds, progress, task))
        if variants:
            console.print(_traffic(variants, progress, task))
    console.print(f"{base.batches} batches of {base.batch_rows:,} probe rows, {base.keys:,} keys; {machine()}")
    console.print(FLOW_JOIN_NOTE)


def _effect(scenario: Scenario, progress: Progress, task: TaskID) -> Table:
    """All policies on the same rows."""
    columns = (
        "rows",
        "B",
        "B sent",
        *(f"{kind} MB" for kind in _KINDS),
        "total",
        "signals",
        "pulls",
        "work",
        "CPU",
        "rows/s",
        "pairs",
    )
    table = Table(title=_title(scenario), title_justify="left", box=SIMPLE)
    table.add_column("", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    plain: Outcome | None = None
    for policy in _POLICIES:
        progress.update(task, description=f"{_title(scenario)}: {policy}")
        outcome = simulate(scenario, policy)
        plain = plain or outcome
        table.add_row(
            policy,
            _busiest(outcome.taken),
            _factor(outcome.hot),
            _factor(outcome.skewed),
            *(f"{outcome.bytes[kind] / 1e6:,.1f}" for kind in _KINDS),
            f"{outcome.bytes.total() / 1e6:,.1f}",
            f"{outcome.signals:,}",
            f"{outcome.pulls:,}",
            _busiest(outcome.work),
            _busiest(outcome.busy),
            f"{scenario.rows / max(outcome.busy):,.0f}",
            f"{sum(outcome.pairs):,}" + ("" if sum(outcome.pairs) == sum(plain.pairs) else " (wrong)"),
        )
        progress.advance(task)
    return table


def _overhead(scenario: Scenario, rounds: int, progress: Progress, task: TaskID) -> str:
    """What Bala-Join costs where nothing is skewed: CPU time against hash, batch by batch in turn."""
    ratios, routing = [], []
    for round_ in range(rounds + 1):
        progress.update(task, description="overhead on uniform keys")
        plain, bala = Cluster(scenario, "hash"), Cluster(scenario, "bala-join")
        in_turn = (plain, bala) if round_ % 2 else (bala, plain)
        for _ in zip(in_turn[0].steps(), in_turn[1].steps(), strict=True):
            pass
        if round_:
            total = sum(plain.outcome.busy)
            ratios.append(sum(bala.outcome.busy) / total - 1)
            routing.append((bala.outcome.sources_busy - plain.outcome.sources_busy) / total)
        progress.advance(task, 2)
    return (
        f"uniform keys, n = {scenario.nodes}: bala-join takes {statistics.median(ratios):+.1%} CPU time against hash "
        f"({min(ratios):+.1%} to {max(ratios):+.1%} in {rounds} rounds); its routers, where alone they differ, "
        f"{statistics.median(routing):+.1%} ({min(routing):+.1%} to {max(routing):+.1%}) of all of hash"
    )


def _traffic_variants(base: Scenario) -> list[Scenario]:
    skewed = replace(base, build_zipf=base.zipf, window_us=_NARROW_US)
    variants = [skewed]
    variants += [replace(skewed, balance=balance) for balance in (0.05, 0.1, 0.3)]
    variants += [replace(skewed, threshold=threshold) for threshold in (0.005, 0.02, 0.05)]
    variants += [replace(skewed, ratio=ratio) for ratio in (0.1, 0.3)]
    variants += [replace(skewed, zipf=zipf, build_zipf=zipf) for zipf in (1.0, 1.5)]
    variants += [replace(skewed, build_zipf=build_zipf) for build_zipf in (None, 0.75)]
    return [replace(variant, nodes=nodes) for nodes in (4, 8) for variant in variants]


def _traffic(variants: Sequence[Scenario], progress: Progress, task: TaskID) -> Table:
    """The build side is skewed too, as in the paper: only then do replicas weigh anything."""
    title = (
        f"Traffic of PnR and of Bala-Join, in MB; mean of {len(_PLACEMENTS)} placements of the keys, and the worst B"
    )
    table = Table(title=title, title_justify="left", box=SIMPLE)
    for column in (
        "n",
        "z",
        "build z",
        "|R|/|S|",
        "ε",
        "θ",
        "pnr",
        "bala-join",
        "less",
        "replicas",
        "bala-join",
        "less",
    ):
        table.add_column(column, justify="right")
    for column in ("B of pnr", "B of bala-join"):
        table.add_column(column, justify="right")
    for scenario in variants:
        progress.update(task, description=f"traffic: {_title(scenario)}")
        pnr, bala = [], []
        for seed in _PLACEMENTS:
            placed = replace(scenario, seed=seed)
            pnr.append(simulate(placed, "pnr"))
            bala.append(simulate(placed, "bala-join"))
            progress.advance(task, 2)
        table.add_row(
            str(scenario.nodes),
            f"{scenario.zipf:g}",
            "uniform" if scenario.build_zipf is None else f"{scenario.build_zipf:g}",
            f"{scenario.ratio:.2f}",
            f"{scenario.balance:g}",
            f"{scenario.threshold:g}",
            *_compared([run.bytes.total() for run in pnr], [run.bytes.total() for run in bala]),
            *_compared([run.bytes["replicas"] for run in pnr], [run.bytes["replicas"] for run in bala]),
            f"{max(balance_factor(run.hot) or 0 for run in pnr):.2f}",
            f"{max(balance_factor(run.hot) or 0 for run in bala):.2f}",
        )
    return table


def _compared(theirs: Sequence[int], ours: Sequence[int]) -> tuple[str, str, str]:
    before, after = statistics.mean(theirs), statistics.mean(ours)
    return f"{before / 1e6:,.1f}", f"{after / 1e6:,.1f}", f"{1 - after / before:.0%}"


def _title(scenario: Scenario) -> str:
    keys = "one hot key" if scenario.zipf is None else f"z = {scenario.zipf:g}"
    rule = f"|R|/|S| = {scenario.ratio:.2f}, ε = {scenario.balance:g}, θ = {scenario.threshold:g}"
    return f"n = {scenario.nodes}, {keys}, {rule}"


def _busiest(loads: Sequence[float]) -> str:
    share = max(loads) / sum(loads)
    return f"{share:.0%} {share * len(loads):.2f}"


def _factor(rows: Sequence[int]) -> str:
    factor = balance_factor(rows)
    return "–" if factor is None else f"{factor:.2f}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--batch-rows", type=int, default=100_000, help="of the probe side")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--ratio", type=float, default=2 / 3, help="|R|/|S|: build rows a probe row")
    parser.add_argument("--rounds", type=int, default=5, help="of the comparison on uniform keys")
    parser.add_argument("--uniform-only", action="store_true", help="only the comparison on uniform keys")
    return parser.parse_args()


if __name__ == "__main__":
    main()
