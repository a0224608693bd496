"""How long a result takes, from the moment its later row is produced until a consumer of committed records has it.

Both streams are produced at a fixed rate while the join starts and runs, with a trigger of 0 s. Prints p50 and p99 for
each minute from the start. Beside `balajoin run` (exactly once, defaults) runs Spark's own join (at least once, with
balajoin's settings), in a process of its own, on the same broker. Every probe row has about one match.
"""

import argparse
import multiprocessing
import os
import re
import shutil
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import service
from bench import create_topics, machine
from confluent_kafka import Consumer, Producer
from contenders import SPARK_JOINS
from rich.console import Console
from rich.table import Table

from balajoin.config.models import Kafka
from balajoin.embedded import EmbeddedKafka
from balajoin.spark.jars import default_cache, fetch

_HERE = Path(__file__).parents[1]
_TIME = re.compile(rb'at\\*":(\d{13})')
_INTERVAL_S = 30
_TICK_S = 0.01
_ONE_IN = 7  # the consumer looks at one result in seven
OURS = "balajoin"


def main() -> None:
    options = _options()
    folder = Path(tempfile.mkdtemp(prefix="balajoin-bench-"))
    console = Console(width=120)
    table = Table(title=f"seconds from produced to committed; {machine()}")
    minutes = [f"minute {minute + 1}" for minute in range(options.minutes)]
    for column in ("rows/s", "join", *(f"{minute}: p50 / p99" for minute in minutes), "CPU s a s"):
        table.add_column(column, justify="right")
    try:
        with EmbeddedKafka(folder / "kafka", fetch("broker", default_cache(os.environ))) as broker:
            servers = Kafka(bootstrap_servers=broker.bootstrap_servers)
            for rate in options.rates:
                for name in options.joins:
                    found, cpu = _measure(name, rate, servers, folder, options)
                    shown = [_shown(found[minute]) for minute in range(options.minutes)]
                    console.print(rate, name, *shown)
                    table.add_row(f"{rate:,}", name, *shown, f"{cpu:.2f}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    console.print(table)


def _measure(
    name: str, rate: int, servers: Kafka, folder: Path, options: argparse.Namespace
) -> tuple[dict[int, list[float]], float]:
    """Latencies in seconds by minute, and the join's CPU seconds per second in the last minute."""
    load = re.sub(r"\W+", "-", f"{name}-{rate}")
    create_topics(servers, f"probe-{load}", f"build-{load}")
    with _started(name, load, servers, folder, options.spark) as (pid, out):
        producing = multiprocessing.Process(target=_produce, args=(servers.bootstrap_servers, load, rate), daemon=True)
        producing.start()
        began = time.time()
        last_minute = began + 60 * (options.minutes - 1)
        found: dict[int, list[float]] = defaultdict(list)
        cpu = None
        try:
            for at, latency in _latencies(servers, out, until=began + 60 * options.minutes):
                found[int((at - began) // 60)].append(latency)
                if cpu is None and at >= last_minute:
                    cpu = service.cpu_of(pid)
        finally:
            producing.terminate()
        used = service.cpu_of(pid) - cpu if cpu else service.Cpu(0, 0, 0)
    return found, (used.jvm + used.python) / 60


def _shown(seconds: list[float]) -> str:
    if len(seconds) < 100:
        return "–"
    return f"{statistics.median(seconds):.2f} / {statistics.quantiles(seconds, n=100)[98]:.2f}"


@contextmanager
def _started(
    name: str, load: str, servers: Kafka, folder: Path, spark: list[tuple[str, str]]
) -> Iterator[tuple[int, str]]:
    """Runs the join within the block. Yields its process id and the topic that it writes to."""
    chosen = argparse.Namespace(
        batch=10_000_000, interval=f"{_INTERVAL_S} s", lateness="10 s", policy="bala-join", value=None
    )
    contender = service.Contender(_HERE, tuple(spark), peer="" if name == OURS else name)
    with service.service(contender, load, load, servers, folder, chosen) as running:
        assert running.stderr is not None
        threading.Thread(target=list, args=(running.stderr,), daemon=True).start()  # or its log would fill the pipe
        yield running.pid, load


def _produce(servers: str, load: str, rate: int) -> None:
    """Produces ten probe rows for each build row. A key has one build row in the interval."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "compression.type": "lz4"})
    keys = rate // 11 * _INTERVAL_S
    sent, began = 0, time.time()
    while True:
        due = int((time.time() - began) * rate)
        now = time.time_ns() // 1_000_000
        for number in range(sent, due):
            stream = "build" if number % 11 == 0 else "probe"
            key = number // 11 if stream == "build" else number * 7919
            value = b'{"at":%d,"page":"/products/%010d","n":%d}' % (now, number, number)
            producer.produce(f"{stream}-{load}", value, b"k%08d" % (key % keys))
        sent = due
        producer.poll(0)
        time.sleep(_TICK_S)


def _latencies(servers: Kafka, topic: str, until: float) -> Iterator[tuple[float, float]]:
    consumer = Consumer(
        {"bootstrap.servers": servers.bootstrap_servers, "group.id": topic, "auto.offset.reset": "earliest",
         "isolation.level": "read_committed", "fetch.wait.max.ms": 5}
    )  # fmt: skip
    consumer.subscribe([topic])
    try:
        while time.time() < until:
            messages = consumer.consume(5_000, 0.02)
            at = time.time()
            for message in messages:
                offset, value = message.offset(), message.value()
                if offset is not None and value and offset % _ONE_IN == 0:
                    yield at, at - max(map(int, _TIME.findall(value))) / 1000
    finally:
        consumer.close()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    peers = [contender.name for contender in SPARK_JOINS]
    parser.add_argument("--rates", type=int, nargs="+", default=[5_000, 20_000])
    parser.add_argument("--minutes", type=int, default=3)
    parser.add_argument("--joins", nargs="+", default=[OURS, *peers], choices=[OURS, *peers])
    parser.add_argument("--spark", type=service.setting, action="append", default=[], metavar="KEY=VALUE")
    return parser.parse_args()


if __name__ == "__main__":
    main()
