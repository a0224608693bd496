"""How evenly work is spread over nodes, and what that costs: rows taken in, and pairs made.

Run with `make bench`; needs neither Kafka nor Spark, see `cluster`. All figures are exact counts. Each is the mean of a
few placements of the keys, the worst of them in brackets, because which nodes hot keys have their homes at is luck.

- *work* is the busiest node's, over the mean of all nodes: 1.00 is perfectly even.
- *cost* is the busiest node's work, times n, over the work that any join has: its input rows and its pairs. Replicas
  come on top, so that a policy which spreads rows at the price of many replicas has a high cost, however even its work.
- *by batch* is the same, but of the busiest node in each batch: no node begins a batch before all have ended the last.
- *replicas* is the number of build rows sent to a second node, and *fragments* that of probe rows, for each row of the
  input; *MB* is all that leaves its node, uncompressed; *signals* is their number.
"""

import argparse
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
import pyarrow as pa
from bench import machine
from cluster import Cluster, Outcome, Scenario, simulate
from rich.box import SIMPLE
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from balajoin.core.spec import ResultFormat
from balajoin.routing.rule import Measure
from balajoin.sinks.values import ResultEncoder

_NODES = (4, 8, 16)
_WINDOW_US = 25_000  # both sides skewed: about a dozen pairs a probe row


@dataclass(frozen=True)
class Figures:
    work: float
    cost: float
    by_batch: float
    replicas: float
    fragments: float
    megabytes: float
    signals: int

    @classmethod
    def of(cls, scenario: Scenario, outcome: Outcome, pair_cost: float) -> "Figures":
        nodes, work = scenario.nodes, outcome.work_at(pair_cost)
        needed = scenario.rows + pair_cost * sum(outcome.pairs)
        busiest = (max(rows + pair_cost * pairs for rows, pairs in batch) for batch in outcome.by_batch)
        return cls(
            work=max(work) * nodes / sum(work),
            cost=max(work) * nodes / needed,
            by_batch=sum(busiest) * nodes / needed,
            replicas=outcome.replicas / scenario.rows,
            fragments=outcome.fragments / scenario.rows,
            megabytes=outcome.bytes.total() / 1e6,
            signals=outcome.signals,
        )


def main() -> None:
    options = _options()
    console = Console(width=130)
    base = Scenario(4, 1.25, batches=options.batches, batch_rows=options.batch_rows, keys=options.keys)
    loads = {name: load for name, load in _loads(base) if not options.only or options.only in name}
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("", total=len(loads) * len(options.nodes) * options.placements)
        for nodes in options.nodes:
            table = Table(title=f"n = {nodes}", title_justify="left", box=SIMPLE)
            table.add_column("", no_wrap=True)
            for column in ("work", "cost", "by batch", "replicas", "fragments", "MB", "signals"):
                table.add_column(column, justify="right", no_wrap=True)
            for name, load in loads.items():
                progress.update(task, description=f"n = {nodes}, {name}")
                runs = []
                for seed in range(options.placements):
                    scenario = replace(
                        load, nodes=nodes, seed=seed, measure=options.measure, pair_cost=options.pair_cost
                    )
                    runs.append(Figures.of(scenario, simulate(scenario, "bala-join"), options.pair_cost))
                    progress.advance(task)
                table.add_row(name, *_row(runs))
            console.print(table)
    if options.costs:
        console.print(_pair_cost())
    console.print(
        f"{base.batches} batches of {base.batch_rows:,} probe rows, {base.keys:,} keys, a pair costs "
        f"{options.pair_cost:g} rows, {options.placements} placements; {machine()}"
    )


class _Writing(Cluster):
    """A join of one node, which also makes the JSON of each pair if `writes` is set."""

    writes = False
    _encoder = ResultEncoder(ResultFormat("inner", {"key": "text", "probe_value": "literal", "build_value": "literal"}))

    def take(self, node: int, results: Iterator[pa.Table]) -> None:
        for table in results:
            if self.writes and table.num_rows:
                self._encoder.records(table)


def _pair_cost() -> str:
    """CPU time of a node for a row and for a pair: a line through runs with few and with many pairs."""
    base = Scenario(1, 0.0, build_zipf=0.0, keys=300, batch_rows=60_000, batches=6)
    seconds: dict[bool, list[tuple[int, int, float]]] = {}
    for writes in (False, True):
        for window_us in (500, 100_000, 300_000):
            runs = []
            for _ in range(4):  # the first compiles
                cluster = _Writing(replace(base, window_us=window_us), "hash")
                cluster.writes = writes
                for _ in cluster.steps():
                    pass
                runs.append(cluster.outcome.busy[0] - cluster.outcome.sources_busy)
            outcome = cluster.outcome
            seconds.setdefault(writes, []).append((outcome.taken[0], outcome.pairs[0], min(runs)))
    (row, found), (_, written) = (
        np.linalg.lstsq(np.array(points)[:, :2], np.array(points)[:, 2])[0] * 1e6 for points in seconds.values()
    )
    return (
        f"a node takes {row:.2f} µs for a row, {found:.2f} µs for a pair and {written:.2f} µs for one written as JSON"
    )


def _loads(base: Scenario) -> Iterator[tuple[str, Scenario]]:
    yield "uniform keys", replace(base, zipf=0.0)
    yield "one hot key", replace(base, zipf=None)
    for zipf in (1.25, 1.5):
        yield f"probe Zipf({zipf:g})", replace(base, zipf=zipf)
    for zipf in (1.25, 1.5):
        yield f"both Zipf({zipf:g})", replace(base, zipf=zipf, build_zipf=zipf, window_us=_WINDOW_US)
    yield "moving hot keys", replace(base, moves_after=2)
    yield "moving, both Zipf(1.25)", replace(base, build_zipf=1.25, window_us=_WINDOW_US, moves_after=2)
    yield "keyed, both Zipf(1.25)", replace(base, build_zipf=1.25, window_us=_WINDOW_US, by_key=True)


def _row(runs: Sequence[Figures]) -> Iterator[str]:
    def worst(figure: Callable[[Figures], float]) -> str:
        return f"{statistics.mean(map(figure, runs)):.2f} ({max(map(figure, runs)):.2f})"

    yield worst(lambda run: run.work)
    yield worst(lambda run: run.cost)
    yield worst(lambda run: run.by_batch)
    yield f"{statistics.mean(run.replicas for run in runs):.2f}"
    yield f"{statistics.mean(run.fragments for run in runs):.2f}"
    yield f"{statistics.mean(run.megabytes for run in runs):,.1f}"
    yield f"{statistics.mean(run.signals for run in runs):,.0f}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=6)
    parser.add_argument("--batch-rows", type=int, default=48_000, help="of the probe side")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--nodes", type=int, nargs="+", default=_NODES)
    parser.add_argument("--placements", type=int, default=3)
    parser.add_argument("--pair-cost", type=float, default=1.0, help="of a pair, in rows")
    parser.add_argument("--measure", choices=get_args(Measure), default="work")
    parser.add_argument("--costs", action="store_true", help="also measure what a row and a pair cost")
    parser.add_argument("--only", help="only loads with this in their name")
    return parser.parse_args()


if __name__ == "__main__":
    main()
