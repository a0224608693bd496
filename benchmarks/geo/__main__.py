"""`make geo`: joins on small nodes, each a network namespace with its own bandwidth and share of the CPU.

A broker, a driver and some workers are hosts on this machine; nothing leaves them. Every contender joins the same
topics. Prints a table and writes a JSON file. Needs root. The first batches warm up and are not counted.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import machine
from rich.console import Console

from balajoin.spark.jars import default_cache, fetch
from geo import broker, faults, joining, network, outcome, runs, spark_cluster
from geo.hosts import Hosts, Size, hosts
from geo.loads import BUILD_KEYS, PROBE_KEYS, Load, as_json
from geo.measuring import Say

_RATIOS = {"1:60": 1 / 60, "1:10": 1 / 10, "2:3": 2 / 3}
_DEFAULT_RUNS = ("hash", "bala-join", "flink", "spark-rocksdb")


def main() -> None:
    options = _options()
    if problem := network.problem():
        sys.exit(f"make geo: {problem}")
    console = Console(width=200, soft_wrap=True)
    began = time.monotonic()

    def say(text: str) -> None:
        console.print(f"[{time.monotonic() - began:5.0f} s] {text}", highlight=False, markup=False)

    outcomes: list[outcome.Outcome] = []
    failed: list[str] = []
    with _interruptible(), _folder(options.keep) as folder, hosts(folder, options.workers) as all_hosts:
        setting = _set_up(all_hosts, folder, options, say)
        for load, run in _matrix(options, setting):
            if time.monotonic() - began > options.minutes * 60:
                say(f"{options.minutes:g} minutes are over: the rest is left out")
                break
            say(f"{run.name}, {load.name}")
            try:
                outcomes.append(run.start(setting, f"run-{len(outcomes) + len(failed)}", load))
            except (RuntimeError, TimeoutError) as error:
                failed.append(f"{run.name} on {load.name}: {error}")
                say(failed[-1])
            outcome.write(options.json, outcomes, {"machine": machine(), "failed": failed})
    title = f"{options.batch:,} rows a batch, {options.warm_up} batches to warm up; {machine()}"
    console.print(outcome.table(outcomes, title))
    console.print(f"written to {options.json}")
    if wrong := [*failed, *faults.problems([one for one in outcomes if one.fault or options.strict])]:
        sys.exit("\n".join(wrong))


def _set_up(all_hosts: Hosts, folder: Path, options: argparse.Namespace, say: Say) -> joining.Setting:
    package = spark_cluster.shipped(folder) if options.shipped else spark_cluster.installed()
    cache = default_cache(os.environ)
    fetch("connector", cache, notice=say)  # hosts reach no registry
    servers = broker.start(all_hosts.broker, fetch("broker", cache, notice=say))
    cluster = spark_cluster.SparkCluster(all_hosts)
    cluster.start()
    say(f"a broker, a driver and {len(all_hosts.workers)} workers are up")
    return joining.Setting(
        cluster=cluster,
        package=package,
        servers=servers,
        sizes=options.workers,
        folder=folder,
        batch_rows=options.batch,
        warm_up=options.warm_up,
        limit_s=options.limit,
        say=say,
        conf=dict(options.spark),
    )


def _matrix(options: argparse.Namespace, setting: joining.Setting) -> Iterator[tuple[Load, runs.Run]]:
    """Produces a load before its first run."""
    for ratio in options.ratios:
        for build in options.build_keys:
            for probe in options.probe_keys:
                build_rows = max(round(options.rows * _RATIOS[ratio]), 1)
                load = Load(probe, build, options.rows, build_rows, len(options.workers))
                setting.cluster.hosts.broker.run([sys.executable, "-m", "geo.loads", setting.servers, as_json(load)])
                setting.say(f"load {load.name}: {load.expected_results:,} results expected")
                yield from ((load, run) for run in runs.named(options.runs))


@contextmanager
def _interruptible() -> Iterator[None]:
    """A request to end becomes an exception, so that everything made is removed."""

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    yield


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="balajoin-geo-")) if keep is None else keep.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield folder
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)


def _worker(text: str) -> Size:
    cores, _, mbit = text.partition("@")
    return Size(float(cores), float(mbit))


def _setting(text: str) -> tuple[str, str]:
    key, _, value = text.partition("=")
    return key, value


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make geo", description=__doc__)
    parser.add_argument("--workers", nargs="+", type=_worker, default=[Size(0.35, 100)] * 4, metavar="CORES@MBIT")
    parser.add_argument("--runs", nargs="+", choices=runs.NAMES, default=_DEFAULT_RUNS, help="what is measured")
    parser.add_argument("--probe-keys", nargs="+", choices=PROBE_KEYS, default=["one-key", "zipf-1.25"])
    parser.add_argument("--build-keys", nargs="+", choices=BUILD_KEYS, default=["uniform"])
    parser.add_argument("--ratios", nargs="+", choices=_RATIOS, default=["1:60"], help="build rows to probe rows")
    parser.add_argument("--all", action="store_true", help="all loads and contenders, for --minutes at most")
    parser.add_argument("--rows", type=int, default=3_600_000, help="probe rows")
    parser.add_argument("--batch", type=int, default=600_000)
    parser.add_argument("--warm-up", type=int, default=2, help="batches that are not counted")
    parser.add_argument("--limit", type=float, default=300, help="seconds that a run may take")
    parser.add_argument("--minutes", type=float, default=30, help="no run starts later than this")
    parser.add_argument("--shipped", action="store_true", help="executors get balajoin with the query")
    parser.add_argument("--spark", nargs="+", type=_setting, default=[], metavar="KEY=VALUE", help="Spark settings")
    parser.add_argument("--strict", action="store_true", help="fail also if a run without a fault is incomplete")
    parser.add_argument("--json", type=Path, default=Path("artifacts/geo.json"))
    parser.add_argument("--keep", type=Path, help="a new folder for logs, which stays")
    options = parser.parse_args()
    if options.all:
        options.runs, options.ratios = [*runs.CONTENDERS, *faults.FAULTS], list(_RATIOS)
        options.probe_keys, options.build_keys = list(PROBE_KEYS), list(BUILD_KEYS)
    return options


if __name__ == "__main__":
    main()
