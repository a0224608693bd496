"""Rows per second, Kafka to Kafka: this join, Spark's own joins and plain pass-through, in one run.

Run with `make bench`. All rows are in Kafka beforehand; a contender reads, joins and writes them all. The first rounds
warm up and are not counted: a stream runs for long, so the JVM has compiled its code. In the third round the compilers
still take 2.4 s of CPU in balajoin's run and 2.2 s in that of Spark's default store, from the sixth on 1.1 and 0.4; the
table shows the rest. Contenders take turns, back and forth, so that a slow minute of the machine hits them all and none
always follows the same one. The median counts. Compare ratios: absolute figures depend on the machine.
"""

import argparse
import statistics
import time
from dataclasses import dataclass, replace
from typing import Any

from bench import checkpoint, create_topics, kafka, machine, preload, session, to_kafka
from contenders import BY_HASH, OURS, PLAIN, STAR, TUNED, WITH_IDS, Contender, Workload, writer_options
from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

SPAN_MS = 600_000
_WARM_UPS = 5
_DISTRIBUTIONS = {"uniform": 0.0, "Zipf(1.25)": 1.25}
_CONTENDERS = (PLAIN[0], OURS, BY_HASH, WITH_IDS, *PLAIN[1:], *TUNED)
_TOPICS = {name: f"probe-{number}" for number, name in enumerate(_DISTRIBUTIONS)}


@dataclass(frozen=True)
class TimedRun:
    seconds: float
    compiling: float
    """Seconds that the JVM's compilers worked during the run."""


def main() -> None:
    options = _options()
    console = Console(width=130)
    total = options.probe + options.build
    with kafka() as servers, session() as spark, Progress(console=console, transient=True) as progress:
        create_topics(servers, "build", "out", "dead", "late", "control", "replicas", *_TOPICS.values())
        preload(servers, "build", options.build, options.build, None, SPAN_MS, seed=0)
        loads = options.keys or list(_TOPICS)
        for name in loads:
            preload(servers, _TOPICS[name], options.probe, options.build, _DISTRIBUTIONS[name], SPAN_MS, seed=1)
        contenders = [contender for contender in _CONTENDERS if options.only in contender.name]
        task = progress.add_task("measuring", total=len(loads) * (_WARM_UPS + options.rounds) * len(contenders))
        for name in loads:
            load = Workload(servers, _TOPICS[name], "build", options.rows_per_batch)
            runs: dict[str, list[TimedRun]] = {contender.name: [] for contender in contenders}
            for round_ in range(_WARM_UPS + options.rounds):
                for contender in contenders if round_ % 2 else reversed(contenders):
                    progress.update(task, description=f"{name}: {contender.name}")
                    run = _measure(spark, contender, load)
                    if round_ >= _WARM_UPS:
                        runs[contender.name].append(run)
                    progress.advance(task)
            console.print(_table(name, runs, total))
    console.print(STAR)
    console.print(f"{options.probe:,} probe and {options.build:,} build rows; {machine()}")


def _measure(spark: SparkSession, contender: Contender, load: Workload) -> TimedRun:
    contender.prepare(spark)
    jvm: Any = spark._jvm
    compilers = jvm.java.lang.management.ManagementFactory.getCompilationMXBean()
    with checkpoint() as folder:
        frame = contender.make(spark, replace(load, tuned=contender.tuned))
        compiled_ms, started = compilers.getTotalCompilationTime(), time.perf_counter()
        to_kafka(frame, writer_options(load.kafka, contender.tuned), "out", folder)
        seconds = time.perf_counter() - started
        return TimedRun(seconds, (compilers.getTotalCompilationTime() - compiled_ms) / 1000)


def _table(title: str, runs: dict[str, list[TimedRun]], rows: int) -> Table:
    seconds = {name: [run.seconds for run in of_one] for name, of_one in runs.items()}
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    ours, limit = medians.get("balajoin"), medians.get("pass-through")
    table = Table(title=f"{title} keys", title_justify="left")
    for column in (
        "",
        "rows/s",
        "seconds",
        "from - to",
        "JVM compiles, s",
        "of pass-through",
        "balajoin is faster by",
    ):
        table.add_column(column, justify="left" if not column else "right")
    for name, median in medians.items():
        table.add_row(
            name,
            f"{rows / median:,.0f}",
            f"{median:.2f}",
            f"{min(seconds[name]):.2f} - {max(seconds[name]):.2f}",
            f"{statistics.median(run.compiling for run in runs[name]):.1f}",
            f"{limit / median:.0%}" if limit else "",
            f"{median / ours:.2f} x" if ours else "",
        )
    return table


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--probe", type=int, default=1_000_000)
    parser.add_argument("--build", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows-per-batch", type=int, default=None, help="rows of each topic in a batch (default: all)")
    parser.add_argument("--keys", choices=list(_TOPICS), action="append", help="a load to measure (default: all)")
    parser.add_argument("--only", default="", help="measure only contenders whose name contains this")
    return parser.parse_args()


if __name__ == "__main__":
    main()
