"""Ten minutes of the service at 70 % of its maximum, while rows expire: does anything grow?

Both streams are produced live, on the same machine, with Zipf(1.25) keys. A first, short run gets more rows than it can
join, and its later batches give the maximum. The second run gets 70 % of that. Every few seconds the benchmark notes
rows per second, memory by kind, disk, and how many rows wait in Kafka. It prints a row a minute and draws the plot.
"""

import argparse
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

import matplotlib
import service
from bench import PARTITIONS, VALUE, machine
from confluent_kafka import Producer
from rich.console import Console
from rich.table import Table

from balajoin.config.models import Kafka
from balajoin.embedded import EmbeddedKafka, workload
from balajoin.kafka import topics
from balajoin.spark.jars import default_cache, fetch

matplotlib.use("Agg")
import matplotlib.pyplot as plt

_HERE = Path(__file__).parents[1]
_TICK_S = 0.02
_SAMPLE_S = 5
_REPEATED = 1 << 20  # the sequence of keys repeats after so many rows
_WARM_UP_S = 60
# Kafka deletes whole segments; without a limit ten minutes of input and output would take 15 GB.
_TOPIC = topics.Shape(PARTITIONS, {"retention.bytes": str(256 << 20), "segment.bytes": str(64 << 20)})


@dataclass(frozen=True)
class Moment:
    seconds: float
    joined: int
    """Rows that were joined since the start."""
    waiting: int
    """Rows that were produced and are not yet joined."""
    jvm_mb: float
    python_mb: float
    mapped_mb: float
    """Pages of files that these processes have mapped. The kernel may drop them at any time."""
    local_mb: float
    checkpoint_mb: float


@dataclass
class Running:
    """A service, the producer of its rows, and what the service has told of its batches."""

    process: "subprocess.Popen[str]"
    folder: Path
    produced: "Synchronized[int]"
    began: float = field(default_factory=time.monotonic)
    batches: list[tuple[float, int, int]] = field(default_factory=list)
    """When each batch ended, in seconds since the start; its rows; its milliseconds."""

    def follow(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if found := service.BATCH.search(line):
                _, rows, _, milliseconds = map(int, found.groups())
                self.batches.append((time.monotonic() - self.began, rows, milliseconds))

    def moment(self) -> Moment:
        joined = sum(rows for _, rows, _ in self.batches)
        memory = {"java": 0.0, "python": 0.0, "mapped": 0.0}
        for pid, name, _ in service.family(self.process.pid):
            with suppress(OSError):  # the process has ended
                status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
                memory["java" if name.startswith("java") else "python"] += _mb(status.get("RssAnon", "0 kB"))
                memory["mapped"] += _mb(status.get("RssFile", "0 kB"))
        return Moment(
            time.monotonic() - self.began,
            joined,
            self.produced.value - joined,
            memory["java"],
            memory["python"],
            memory["mapped"],
            _disk_mb(self.folder, without="checkpoint"),
            _disk_mb(self.folder / "checkpoint"),
        )


def main() -> None:
    options = _options()
    console = Console(width=120)
    folder = Path(tempfile.mkdtemp(prefix="balajoin-bench-"))
    moments = []
    try:
        with EmbeddedKafka(folder / "kafka", fetch("broker", default_cache(os.environ))) as broker:
            servers = Kafka(bootstrap_servers=broker.bootstrap_servers)
            rate = options.rate or round(0.7 * _maximum(servers, folder, options.ceiling))
            console.print(f"{rate:,} rows/s")
            with _joining("steady", rate, servers, folder) as running:
                while not moments or moments[-1].seconds < 60 * options.minutes:
                    time.sleep(_SAMPLE_S)
                    moments.append(running.moment())
                    if running.process.poll() is not None:
                        sys.exit(f"the service ended with {running.process.returncode}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    console.print(_table(moments, rate))
    if options.plot:
        _draw(moments, rate, options.plot)


def _maximum(servers: Kafka, folder: Path, ceiling: int) -> float:
    with _joining("maximum", ceiling, servers, folder) as running:
        time.sleep(2 * _WARM_UP_S)
        warm = [(rows, milliseconds) for at, rows, milliseconds in running.batches if at > _WARM_UP_S]
    return 1000 * sum(rows for rows, _ in warm) / sum(milliseconds for _, milliseconds in warm)


@contextmanager
def _joining(name: str, rate: int, servers: Kafka, folder: Path) -> Iterator[Running]:
    """Runs the service, and a producer at this rate, within the block."""
    topics.create_missing(servers, {f"probe-{name}": _TOPIC, f"build-{name}": _TOPIC, name: _TOPIC}, 1)
    load = argparse.Namespace(batch=600_000, interval="10 s", lateness="2 s", policy="bala-join", value=None)
    contender = service.Contender(_HERE)
    produced = multiprocessing.Value("q", 0)
    with service.service(contender, name, name, servers, folder, load) as process:
        producer = multiprocessing.Process(
            target=_produce, args=(servers.bootstrap_servers, name, rate, produced), daemon=True
        )
        producer.start()
        running = Running(process, folder / name, produced)
        threading.Thread(target=running.follow, daemon=True).start()
        try:
            yield running
        finally:
            producer.terminate()


def _produce(servers: str, load: str, rate: int, produced: "Synchronized[int]") -> None:
    """Produces ten probe rows for each build row. Each probe row has about one match at a time."""
    producer = Producer(
        {"bootstrap.servers": servers, "linger.ms": 20, "compression.type": "lz4", "queue.buffering.max.kbytes": 65536}
    )
    keys = max(1, rate // 11 * 20)
    names = [b"k%08d" % number for number in workload.zipf_keys(_REPEATED, keys, 1.25, seed=1).tolist()]
    began = time.monotonic()
    while True:
        sent = produced.value
        due = min(int((time.monotonic() - began) * rate), sent + rate // 10)
        now = time.time_ns() // 1_000_000
        for number in range(sent, due):
            build = number % 11 == 0
            key = b"k%08d" % (number // 11 % keys) if build else names[number % _REPEATED]
            stream = "build" if build else "probe"
            while True:
                try:
                    producer.produce(f"{stream}-{load}", VALUE, key, partition=number % PARTITIONS, timestamp=now)
                    break
                except BufferError:
                    producer.poll(0.02)
        produced.value = max(sent, due)
        producer.poll(0)
        time.sleep(_TICK_S)


def _mb(size: str) -> float:
    return int(size.split()[0]) / 1024


def _disk_mb(folder: Path, without: str = "") -> float:
    total = 0
    for path in folder.rglob("*"):
        if not (without and path.is_relative_to(folder / without)):
            with suppress(OSError):  # expired files are removed meanwhile
                total += path.stat().st_blocks * 512
    return total / 1e6


def _by_minute(moments: list[Moment]) -> Iterator[tuple[Moment, float]]:
    """The last moment of each minute, and the rows a second of that minute."""
    last = Moment(0, 0, 0, 0, 0, 0, 0, 0)
    for minute in range(1, round(moments[-1].seconds / 60) + 1):
        moment = max((one for one in moments if one.seconds <= 60 * minute + _SAMPLE_S), key=lambda one: one.seconds)
        yield moment, (moment.joined - last.joined) / (moment.seconds - last.seconds)
        last = moment


def _table(moments: list[Moment], rate: int) -> Table:
    table = Table(title=f"{rate:,} rows/s produced, rows match within 10 s; {machine()}")
    for column in ("minute", "rows/s", "waiting", "JVM MB", "Python MB", "mapped MB", "local MB", "checkpoint MB"):
        table.add_column(column, justify="right")
    for minute, (moment, joined) in enumerate(_by_minute(moments), 1):
        figures = (
            joined, moment.waiting, moment.jvm_mb, moment.python_mb, moment.mapped_mb, moment.local_mb,
            moment.checkpoint_mb,
        )  # fmt: skip
        table.add_row(str(minute), *[f"{figure:,.0f}" for figure in figures])
    return table


def _draw(moments: list[Moment], rate: int, path: Path) -> None:
    minutes = [moment.seconds / 60 for moment in moments]
    figure, (rows, memory, disk) = plt.subplots(3, 1, figsize=(8, 7.5), sharex=True, layout="constrained")
    by_minute = list(_by_minute(moments))
    rows.plot([moment.seconds / 60 for moment, _ in by_minute], [joined / 1000 for _, joined in by_minute], "o-")
    rows.axhline(rate / 1000, color="gray", linestyle="--", label="produced")
    rows.set(ylabel="thousand rows/s", ylim=(0, None), title=f"balajoin run, {rate:,} rows/s, rows match within 10 s")
    rows.legend()
    for name, label in (("jvm_mb", "JVM"), ("python_mb", "Python"), ("mapped_mb", "mapped files")):
        memory.plot(minutes, [getattr(moment, name) for moment in moments], label=label)
    memory.set(ylabel="memory, MB", ylim=(0, None))
    memory.legend()
    for name, label in (("local_mb", "local files"), ("checkpoint_mb", "checkpoint")):
        disk.plot(minutes, [getattr(moment, name) for moment in moments], label=label)
    disk.set(ylabel="disk, MB", xlabel="minutes since the start", ylim=(0, None))
    disk.legend()
    figure.savefig(path, dpi=110)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=int, default=10)
    parser.add_argument("--rate", type=int, help="rows a second (default: 70 %% of the maximum)")
    parser.add_argument("--ceiling", type=int, default=200_000, help="rows a second, more than the service can join")
    parser.add_argument("--plot", type=Path, help="PNG file to draw")
    return parser.parse_args()


if __name__ == "__main__":
    main()
