"""The time of an almost empty batch: with this join, with its operators but no logic in them, and with Spark's joins.

Run with `make bench`. A running query gets ten rows of each stream at a time. Times are Spark's own
(`triggerExecution`), of the last third of the batches: those before warm up the JVM's compilers. Every key comes
once, because each of only ten keys would be skewed.
"""

import argparse
import re
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bare import BARE
from bench import START_MS, VALUE, checkpoint, create_topics, kafka, machine, session, start_to_kafka
from contenders import (
    BY_HASH,
    OUR_CONF,
    OURS,
    PLAIN,
    STAR,
    TUNED,
    Contender,
    Workload,
    balajoin,
    settings,
    writer_options,
)
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from service import setting

from balajoin.config.models import Config, Kafka, Output, Run, Stream
from balajoin.embedded import workload
from balajoin.kafka import client_options
from balajoin.service.run import start

AS_A_SERVICE = Contender("balajoin, exactly once, as `balajoin run` does it", balajoin, OUR_CONF, tuned=True)
_CONTENDERS = (AS_A_SERVICE, OURS, BY_HASH, BARE, *PLAIN[1:], *TUNED[1:])
_PARTS = ("latestOffset", "walCommit", "queryPlanning", "addBatch", "commitOffsets", "triggerExecution")


def main() -> None:
    options = _options()
    console = Console(width=110)
    chosen = [each for each in _CONTENDERS if any(word in each.name for word in options.only)]
    with (
        kafka() as servers,
        session(dict(options.spark)) as spark,
        Progress(console=console, transient=True) as progress,
    ):
        create_topics(servers, "out", "dead", "late", "control", "replicas")
        task = progress.add_task("", total=len(chosen) * options.batches)
        table = Table("almost empty batch", "milliseconds", "until idle", title=f"{options.batches} batches each")
        for contender in chosen:
            progress.update(task, description=contender.name)
            advance = partial(progress.advance, task)
            batch, until_idle = _measure(spark, servers, contender, options.batches, advance)
            table.add_row(contender.name, f"{batch:,.0f}", f"{until_idle:,.0f}")
        console.print(table)
    console.print(STAR)
    console.print(machine())


def _measure(
    spark: SparkSession, servers: Kafka, contender: Contender, batches: int, done: Callable[[], None]
) -> tuple[float, float]:
    """Milliseconds of a batch, and of all that its rows cause: Spark's join adds a batch to expire state."""
    contender.prepare(spark)
    suffix = re.sub(r"\W+", "-", contender.name.replace("*", "tuned"))
    probe, build = f"few-{suffix}", f"fewer-{suffix}"
    create_topics(servers, probe, build)
    with checkpoint() as folder:
        if contender is AS_A_SERVICE:
            query = _service(spark, servers, probe, build, folder)
        else:
            frame = contender.make(spark, Workload(servers, probe, build, None, contender.tuned))
            query = start_to_kafka(frame, writer_options(servers, contender.tuned), "out", folder)
        for number in range(batches):
            events = [workload.Event(b"k%d-%d" % (number, n), START_MS + number * 1000 + n, VALUE) for n in range(10)]
            for topic in (probe, build):
                workload.produce(client_options.librdkafka_options(servers), topic, events, 2)
            query.processAllAvailable()
            done()
        ran = [p for p in query.recentProgress if "addBatch" in p["durationMs"]]
        query.stop()
    with_rows = [number for number, progress in enumerate(ran) if progress["numInputRows"]]
    times = [progress["durationMs"]["triggerExecution"] for progress in ran]
    warm = with_rows[-len(with_rows) // 3 :]
    if contender is AS_A_SERVICE:
        parts = {name: statistics.median(ran[at]["durationMs"].get(name, 0) for at in warm) for name in _PARTS}
        Console(width=110).print(contender.name, "in ms:", parts)
    return statistics.median(times[number] for number in warm), sum(times[warm[0] :]) / len(warm)


def _service(spark: SparkSession, servers: Kafka, probe: str, build: str, folder: Path) -> StreamingQuery:
    create_topics(servers, "commits")
    config = Config(
        name="almost-empty",
        kafka=servers,
        probe=Stream(topic=probe),
        build=Stream(topic=build),
        join=settings(None),
        output=Output(topic="out", commit_topic="commits"),
        run=Run(checkpoint=str(folder / "checkpoint"), cache_dir=str(folder), trigger="0 s"),
    )
    return start(spark, config)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=150, help="of each contender")
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORD", help="contenders with such a word")
    parser.add_argument("--spark", type=setting, nargs="+", default=[], metavar="KEY=VALUE", help="Spark settings")
    return parser.parse_args()


if __name__ == "__main__":
    main()
