"""What the policies do on Spark and Kafka: rows/s, load and work of the busiest node, balance and traffic, in one run.

Run with `make bench`. All rows are in Kafka beforehand and are read in several batches, so that later ones profit from
what the first ones signalled; the query is stopped when it has read all. Not with `availableNow`: that would fix at its
start how far the control topic is read. The first round warms up and is not counted; then policies take turns.

All nodes share this machine's cores, so that rows/s show what a policy costs more than what its balance gains; signals
and their answers take two small batches more at the end.
Figures are of the batches' own statistics, see `balajoin.observe.report`; columns as in `policies`, but replicas are
compressed here, and B is of the rows that a policy sent as skewed. With `--record DIR` the last round of each
distribution is recorded for `balajoin plot`, as are the pictures in docs/.
"""

import argparse
import statistics
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from bench import FLOW_JOIN_NOTE, PARTITIONS, checkpoint, create_topics, kafka, machine, preload, session
from contenders import VALUE
from pyspark.sql import SparkSession
from rich.box import SIMPLE
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from balajoin import query
from balajoin.config.models import JoinSettings, Kafka, Output, Skew, Stream
from balajoin.edge import output
from balajoin.kafka import client_options
from balajoin.observe.following import Reports
from balajoin.observe.live.recording import Recording
from balajoin.observe.live.telling import Telling
from balajoin.observe.report import BatchReport
from balajoin.routing.rule import PolicyName

_NODES = 4
_SPAN_MS = 600_000
_POLICIES: tuple[PolicyName, ...] = get_args(PolicyName)
_DISTRIBUTIONS = {"uniform": 0.0, "zipf-1.25": 1.25, "one-key": None}


@dataclass
class Measured:
    seconds: float = 0.0
    totals: Counter[str] = field(default_factory=Counter)
    taken: list[int] = field(default_factory=lambda: [0] * _NODES)
    pairs: list[int] = field(default_factory=lambda: [0] * _NODES)
    busy: list[int] = field(default_factory=lambda: [0] * _NODES)
    skewed: list[int] = field(default_factory=lambda: [0] * _NODES)

    def add(self, report: BatchReport) -> None:
        self.totals["batches"] += any(read.rows for read in report.inputs)
        self.totals.update({f"{kind}_bytes": sent for kind, sent in report.traffic.items()})
        for source in report.sources:
            self.totals["signals"] += source.signals
            self.skewed = [rows + more for rows, more in zip(self.skewed, source.skewed_rows, strict=True)]
        for node in report.nodes:
            self.totals["pulls"] += node.pulls
            self.taken[node.node] += node.probe_rows + node.build_rows + node.replica_rows
            self.pairs[node.node] += node.pairs
            self.busy[node.node] += node.busy_us


def main() -> None:
    options = _options()
    console = Console(width=170)
    rows = options.probe + options.build
    with kafka() as servers, session() as spark, Progress(console=console, transient=True) as progress:
        create_topics(servers, "build", "out", "dead", "late", *(f"probe-{name}" for name in options.distributions))
        preload(servers, "build", options.build, options.keys, None, _SPAN_MS, seed=0)
        task = progress.add_task("", total=len(options.distributions) * (options.rounds + 1) * len(options.policies))
        for name in options.distributions:
            exponent = _DISTRIBUTIONS[name]
            keys, zipf = (1, 0.0) if exponent is None else (options.keys, exponent)
            preload(servers, f"probe-{name}", options.probe, keys, zipf, _SPAN_MS, seed=1)
            runs: dict[PolicyName, list[Measured]] = {policy: [] for policy in options.policies}
            for round_ in range(options.rounds + 1):
                for policy in options.policies:
                    progress.update(task, description=f"{name}: {policy}")
                    control = f"{policy}-{name}-{round_}"
                    record = options.record / f"{name}.jsonl" if options.record and round_ == options.rounds else None
                    run = _run(
                        spark, servers, f"probe-{name}", policy, options.probe // options.batches, control, record
                    )
                    if round_:
                        runs[policy].append(run)
                    progress.advance(task)
            console.print(_table(f"n = {_NODES}, {name}", runs, rows))
    console.print(f"{options.probe:,} probe and {options.build:,} build rows; {machine()}")
    if "flow-join" in options.policies:
        console.print(FLOW_JOIN_NOTE)


def _run(
    spark: SparkSession,
    servers: Kafka,
    probe: str,
    policy: PolicyName,
    batch_rows: int,
    name: str,
    record: Path | None,
) -> Measured:
    # bppr is told what is true at Zipf 1.25: the dozen most frequent keys exceed θ.
    given = tuple(f"k{number:08d}" for number in range(12)) if policy == "bppr" else ()
    create_topics(servers, f"control-{name}", f"replicas-{name}")
    settings = JoinSettings(
        before="1 h",
        after="1 h",
        lateness="10 min",
        nodes=_NODES,
        policy=policy,
        skew=Skew(first_pass_rows=batch_rows // PARTITIONS, keys=given),
        dead_letter_topic="dead",
        late_topic="late",
        control_topic=f"control-{name}",
        replica_topic=f"replicas-{name}",
        max_rows_per_batch=batch_rows,
    )
    with checkpoint() as folder, checkpoint() as cache:
        joined = query.join(
            spark, Stream(topic=probe), Stream(topic="build"), kafka=servers, settings=settings, cache_dir=str(cache)
        )
        began = time.perf_counter()
        running = (
            output.to_kafka_columns(joined, Output(topic="out", value=VALUE, id="header"))
            .writeStream.format("kafka")
            .options(**client_options.spark_writer_options(servers))
            .option("topic", "out")
            .option("checkpointLocation", str(folder))
            .start()
        )
        running.processAllAvailable()
        run = Measured(time.perf_counter() - began)
        tell = Telling(
            name,
            policy=policy,
            nodes=_NODES,
            epsilon=settings.skew.balance,
            half_life_ms=settings.skew.half_life_ms,
            inputs=(probe, "build"),
            listeners=[Recording(record).add] if record else [],
        )
        for report in Reports(running).new():
            run.add(report)
            tell(report)
        running.stop()
    return run


def _table(title: str, runs: dict[PolicyName, list[Measured]], rows: int) -> Table:
    columns = ("rows/s", "from - to", "rows", "work", "CPU", "B sent", "probe MB", "build MB", "replicas MB")
    table = Table(title=title, title_justify="left", box=SIMPLE)
    table.add_column("", no_wrap=True)
    for column in (*columns, "signals", "pulls", "batches", "pairs"):
        table.add_column(column, justify="right", no_wrap=True)
    for policy, measured in runs.items():
        speeds = [rows / run.seconds for run in measured]
        run = measured[-1]
        work = [taken + pairs for taken, pairs in zip(run.taken, run.pairs, strict=True)]
        busy = [sum(times) for times in zip(*(run.busy for run in measured), strict=True)]
        table.add_row(
            policy,
            f"{statistics.median(speeds):,.0f}",
            f"{min(speeds):,.0f} - {max(speeds):,.0f}",
            *map(_busiest, (run.taken, work, busy)),
            f"{(max(run.skewed) - min(run.skewed)) / max(run.skewed):.2f}" if max(run.skewed) else "–",
            *(f"{run.totals[kind] / 1e6:,.1f}" for kind in ("probe_bytes", "build_bytes", "replica_bytes")),
            f"{run.totals['signals']:,}",
            f"{run.totals['pulls']:,}",
            str(run.totals["batches"]),
            f"{sum(run.pairs):,}",
        )
    return table


def _busiest(loads: list[int]) -> str:
    share = max(loads) / sum(loads)
    return f"{share:.0%} {share * len(loads):.2f}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--probe", type=int, default=600_000)
    parser.add_argument("--build", type=int, default=60_000)
    parser.add_argument("--keys", type=int, default=60_000)
    parser.add_argument("--batches", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--distributions", nargs="+", choices=_DISTRIBUTIONS, default=list(_DISTRIBUTIONS))
    parser.add_argument("--record", type=Path, metavar="DIR", help="write a file for each distribution there")
    parser.add_argument("--policies", nargs="+", choices=_POLICIES, default=_POLICIES)
    return parser.parse_args()


if __name__ == "__main__":
    main()
