"""The service as a user starts it, `balajoin run` with its defaults: rows per second, and CPU time per million rows.

Delivery is exactly once. All rows are in Kafka beforehand. Each run has a checkpoint and topics of its own and takes
batches of a fixed size as fast as it can. The first batches warm up and are not counted. With `--tree NAME=FOLDER`
another checkout takes turns with this one on the same data, and with `--variant NAME:KEY=VALUE` this one with another
setting of Spark's. Compare ratios: absolute figures depend on the machine.
"""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import peer
from bench import PARTITIONS, create_topics, machine, preload
from rich.console import Console
from rich.table import Table

from balajoin.config.models import Kafka
from balajoin.embedded import EmbeddedKafka
from balajoin.kafka import topics
from balajoin.spark.jars import default_cache, fetch

_HERE = Path(__file__).parents[1]
BATCH = re.compile(r"batch=(\d+) rows_in=(\d+) rows_out=(\d+) duration_ms=(\d+)")
_TICKS = os.sysconf("SC_CLK_TCK")
_PATIENCE_S = 300
EXPONENTS = {"uniform": None, "zipf": 1.25}

CONFIG = """
name = "{name}"
[kafka]
bootstrap_servers = "{servers}"
[probe]
topic = "probe-{load}"
[build]
topic = "build-{load}"
[join]
before = "{interval}"
after = "{interval}"
lateness = "{lateness}"
max_rows_per_batch = {batch}
policy = "{policy}"
[output]
topic = "{name}"
{value}
[run]
checkpoint = "{folder}/checkpoint"
cache_dir = "{folder}"
trigger = "0 s"
[spark]
{spark}
"""


@dataclass(frozen=True)
class Contender:
    """A checkout and the Spark settings that it runs with; or one of Spark's own queries, by name."""

    tree: Path
    spark: tuple[tuple[str, str], ...] = ()
    peer: str = ""


@dataclass(frozen=True)
class Cpu:
    """Seconds of CPU time, by kind of process."""

    jvm: float
    python: float
    broker: float

    def __sub__(self, other: "Cpu") -> "Cpu":
        return Cpu(self.jvm - other.jvm, self.python - other.python, self.broker - other.broker)


@dataclass(frozen=True)
class Sample:
    """What was measured at the end of a batch."""

    at: float
    rows: int
    results: int
    cpu: Cpu


@dataclass(frozen=True)
class Figures:
    rows_per_s: float
    jvm: float
    python: float
    broker: float
    first_result_s: float
    worker_mb: float

    @property
    def cpu(self) -> float:
        return self.jvm + self.python + self.broker


def main() -> None:
    options = _options()
    contenders = {"this": Contender(_HERE), **others(options)}
    contenders |= {name: Contender(_HERE, peer=name) for name in options.peers}
    folder = Path(tempfile.mkdtemp(prefix="balajoin-bench-"))
    console = Console(width=120)
    try:
        with EmbeddedKafka(folder / "kafka", fetch("broker", default_cache(os.environ))) as broker:
            servers = Kafka(bootstrap_servers=broker.bootstrap_servers)
            for load in options.loads:
                fill(servers, load, options)
                found: dict[str, list[Figures]] = {name: [] for name in contenders}
                for round_ in range(options.rounds):
                    for name in list(contenders)[:: 1 if round_ % 2 == 0 else -1]:
                        figures = _run(
                            contenders[name],
                            re.sub(r"\W+", "-", f"{name}-{load}-{round_}"),
                            load,
                            servers,
                            folder,
                            options,
                        )
                        console.print(f"{load} {name} round {round_}: {figures}")
                        found[name].append(figures)
                console.print(_table(load, found, options))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def others(options: argparse.Namespace, spark: tuple[tuple[str, str], ...] = ()) -> dict[str, Contender]:
    """Other checkouts, and this one with other settings of Spark's, by name."""
    found = {name: Contender(folder, spark) for name, folder in options.tree}
    for name, setting in options.variant:
        found[name] = Contender(_HERE, (*found.get(name, Contender(_HERE, spark)).spark, setting))
    return found


def fill(servers: Kafka, load: str, options: argparse.Namespace) -> None:
    create_topics(servers, f"probe-{load}", f"build-{load}")
    build = options.rows // 10
    preload(servers, f"build-{load}", build, build, None, options.span_ms, seed=0)
    preload(servers, f"probe-{load}", options.rows, build, EXPONENTS[load], options.span_ms, seed=1)


@contextmanager
def service(
    contender: Contender, name: str, load: str, servers: Kafka, folder: Path, options: argparse.Namespace
) -> Iterator["subprocess.Popen[str]"]:
    """Runs `balajoin run` of a checkout, or a peer, with its own topics and checkpoint. Writes to topic `name`."""
    own = prepare(contender, name, load, servers, folder, options)
    command = peer.command(contender.peer, servers, load, name, own, options) if contender.peer else run_command(own)
    with running(contender, command) as process:
        yield process
    shutil.rmtree(own, ignore_errors=True)


def prepare(
    contender: Contender, name: str, load: str, servers: Kafka, folder: Path, options: argparse.Namespace
) -> Path:
    """Creates the topics of a run and a folder with its configuration, and returns the folder."""
    sides = [f"{name}.{side}" for side in ("control", "replicas", "late", "dead-letter", "commits")]
    topics.create_missing(
        servers, {name: topics.Shape(PARTITIONS), **dict.fromkeys(sides, topics.Shape(PARTITIONS))}, 1
    )
    own = folder / name
    own.mkdir()
    (own / "join.toml").write_text(
        CONFIG.format(
            name=name,
            servers=servers.bootstrap_servers,
            load=load,
            batch=options.batch,
            interval=options.interval,
            lateness=options.lateness,
            policy=options.policy,
            value=f'value = "{options.value}"' if options.value else "",
            folder=own,
            spark="\n".join(f'"{key}" = "{value}"' for key, value in contender.spark),
        )
    )
    return own


def run_command(own: Path) -> list[str]:
    return [sys.executable, "-m", "balajoin", "run", "-c", str(own / "join.toml")]


@contextmanager
def running(contender: Contender, command: list[str]) -> Iterator["subprocess.Popen[str]"]:
    environment = {**os.environ, "PYTHONPATH": str(contender.tree / "streaming")}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=120)


def _run(
    contender: Contender, name: str, load: str, servers: Kafka, folder: Path, options: argparse.Namespace
) -> Figures:
    began = time.monotonic()
    with service(contender, name, load, servers, folder, options) as process:
        samples = list(samples_of(process, options.rows * 11 // 10, options.batch))
        memory = worker_mb(process.pid)
    first = next(sample for sample in samples if sample.results)
    counted = samples[options.warm_up - 1 :]
    rows = sum(sample.rows for sample in counted[1:])
    cpu = counted[-1].cpu - counted[0].cpu
    million = rows / 1e6
    return Figures(
        round(rows / (counted[-1].at - counted[0].at)),
        round(cpu.jvm / million, 2),
        round(cpu.python / million, 2),
        round(cpu.broker / million, 2),
        round(first.at - began, 1),
        round(memory),
    )


def samples_of(service: "subprocess.Popen[str]", rows: int, batch: int) -> Iterator[Sample]:
    """Yields a sample for each batch, up to the last full one."""
    assert service.stderr is not None
    deadline = time.monotonic() + _PATIENCE_S
    seen = 0
    for line in service.stderr:
        if found := BATCH.search(line):
            _, rows_in, results, _ = map(int, found.groups())
            seen += rows_in
            if rows_in:
                yield Sample(time.monotonic(), rows_in, results, cpu_of(service.pid))
                deadline = time.monotonic() + _PATIENCE_S
            if seen + batch > rows:
                return
        if time.monotonic() > deadline:
            raise TimeoutError("the service finished no batch in time")
    raise RuntimeError(f"the service ended with {service.wait()}")


def cpu_of(service: int) -> Cpu:
    seconds = {"java": 0.0, "python": 0.0}
    for _, name, used in family(service):
        seconds["java" if name.startswith("java") else "python"] += used
    broker = sum(used for _, name, used in family(os.getpid()) if name.startswith("java")) - seconds["java"]
    return Cpu(seconds["java"], seconds["python"], broker)


def worker_mb(service: int) -> float:
    """Private memory of all Python processes of the service."""
    total = 0
    for pid, name, _ in family(service):
        if not name.startswith("java"):
            with suppress(OSError):  # the process has ended
                text = Path(f"/proc/{pid}/smaps_rollup").read_text()
                total += sum(int(kb) for kb in re.findall(r"Private_(?:Clean|Dirty):\s+(\d+)", text))
    return total / 1024


def family(root: int) -> list[tuple[int, str, float]]:
    """A process and its descendants: id, name, and CPU seconds, including those of children that have ended."""
    children: dict[int, list[int]] = {}
    found: dict[int, tuple[str, float]] = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, rest = place.read_text().rpartition(")")
        except OSError:
            continue
        fields = rest.split()
        pid, name = int(head.partition("(")[0]), head.partition("(")[2]
        children.setdefault(int(fields[1]), []).append(pid)
        found[pid] = (name, sum(map(int, fields[11:15])) / _TICKS)
    family, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        if pid in found:
            family.append((pid, *found[pid]))
        waiting += children.get(pid, [])
    return family


def _table(load: str, found: dict[str, list[Figures]], options: argparse.Namespace) -> Table:
    title = (
        f"balajoin run, {options.policy}, {load}, {options.rows:,} probe and {options.rows // 10:,} build rows, "
        f"batches of {options.batch:,}, {options.warm_up} to warm up, medians of {options.rounds}; {machine()}"
    )
    table = Table(title=title)
    for column in ("", "rows/s", "lowest – highest", "JVM s/M", "Python s/M", "broker s/M", "all s/M", "start s", "MB"):
        table.add_column(column, justify="right" if column else "left")
    for name, figures in found.items():
        rates = [one.rows_per_s for one in figures]
        medians = [
            statistics.median(getattr(one, part) for one in figures) for part in ("jvm", "python", "broker", "cpu")
        ]
        table.add_row(
            name,
            f"{statistics.median(rates):,.0f}",
            f"{min(rates):,.0f} – {max(rates):,.0f}",
            *[f"{median:.2f}" for median in medians],
            f"{statistics.median(one.first_result_s for one in figures):.1f}",
            f"{statistics.median(one.worker_mb for one in figures):,.0f}",
        )
    return table


def _tree(text: str) -> tuple[str, Path]:
    name, _, folder = text.partition("=")
    if not (Path(folder) / "streaming" / "balajoin").is_dir():
        raise argparse.ArgumentTypeError(f"{folder} is not a checkout of balajoin")
    return name, Path(folder)


def _variant(text: str) -> tuple[str, tuple[str, str]]:
    name, _, given = text.partition(":")
    return name, setting(given)


def setting(text: str) -> tuple[str, str]:
    key, _, value = text.partition("=")
    return key, value


def add_load_options(parser: argparse.ArgumentParser, rows: int, warm_up: int) -> None:
    """Options of the rows that are produced, and of the join that reads them."""
    parser.add_argument("--rows", type=int, default=rows, help="probe rows; a tenth as many build rows")
    parser.add_argument("--batch", type=int, default=600_000)
    parser.add_argument("--warm-up", type=int, default=warm_up, help="batches that are not counted")
    parser.add_argument("--span-ms", type=int, default=600_000, help="event time that the rows span")
    parser.add_argument("--interval", default="10 d", help="how far apart in time two rows may match")
    parser.add_argument("--lateness", default="0 s")
    parser.add_argument("--policy", default="bala-join")
    parser.add_argument("--value", help="output.value (default: JSON)")


def add_other_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tree", type=_tree, action="append", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--variant", type=_variant, action="append", default=[], metavar="NAME:KEY=VALUE")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add_load_options(parser, rows=3_000_000, warm_up=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--loads", nargs="+", choices=EXPONENTS, default=list(EXPONENTS))
    parser.add_argument("--peers", nargs="+", choices=peer.PEERS, default=[], help="Spark's own queries, to compare")
    add_other_options(parser)
    return parser.parse_args()


if __name__ == "__main__":
    main()
