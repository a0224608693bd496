"""How long a user waits for the first result: after `balajoin run`, and after a crash with much stored state.

Starts the service several times on two short topics, each time with a new checkpoint. In turn with it, starts two
queries that show what of this is Spark: one copies both topics, the other has balajoin's operators with nothing in
them. Then lets the service store many rows, kills all its processes, and starts it again on the same checkpoint: once
with the local files of its nodes, and once without them, as when every node has moved to another machine. Also prints
the memory with the stored rows. With `--tree` and `--variant`, as `service.py` has them, others start in turn as well.
"""

import argparse
import os
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import peer
import service
from bare import BARE
from bench import START_MS, VALUE, create_topics, machine, preload
from contenders import TUNED
from rich.console import Console
from rich.table import Table

from balajoin.config.models import Kafka
from balajoin.embedded import EmbeddedKafka, workload
from balajoin.kafka import client_options
from balajoin.spark.jars import default_cache, fetch

_HERE = Path(__file__).parents[1]
_SPAN_MS = 600_000


def main() -> None:
    options = _options()
    contender = service.Contender(_HERE, tuple(options.spark))
    load = argparse.Namespace(batch=600_000, interval="10 d", lateness="0 s", policy="bala-join", value=None)
    folder = Path(tempfile.mkdtemp(prefix="balajoin-bench-"))
    table = Table("start", "seconds to the first result", title=machine())
    try:
        with EmbeddedKafka(folder / "kafka", fetch("broker", default_cache(os.environ))) as broker:
            servers = Kafka(bootstrap_servers=broker.bootstrap_servers)
            _fill(servers, "few", 1_000)
            ours = {"balajoin run, new checkpoint": contender, **service.others(options, tuple(options.spark))}
            cold: dict[str, list[float]] = {}
            for number in range(options.starts):
                for at, name in enumerate([*ours, TUNED[0].name, BARE.name]):
                    out, chosen = f"few-{number}-{at}", ours.get(name, contender)
                    own = service.prepare(chosen, out, "few", servers, folder, load)
                    if name in ours:
                        command = service.run_command(own)
                    else:
                        command = peer.command(name, servers, "few", out, own, load)
                    with _first_result(chosen, command) as (seconds, _):
                        cold.setdefault(name, []).append(seconds)
            for name, found in cold.items():
                shown = " ".join(f"{seconds:.1f}" for seconds in sorted(found))
                table.add_row(name, f"{statistics.median(found):.1f} ({shown})")
            if options.rows:
                _fill(servers, "many", options.rows)
                own = service.prepare(contender, "many", "many", servers, folder, load)
                _store(contender, own, options.rows, load.batch)
                for name, keeps in (("local files are there", True), ("local files are gone", False)):
                    if not keeps:
                        _remove_local_files(own)
                    _add(servers, "many")
                    with _first_result(contender, service.run_command(own)) as (seconds, pid):
                        memory = service.worker_mb(pid)
                        table.add_row(f"{options.rows * 11 // 10:,} rows stored, crash, {name}", f"{seconds:.1f}")
                table.add_row("private memory of the Python processes then", f"{memory:,.0f} MB")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    Console(width=120).print(table)


def _fill(servers: Kafka, load: str, rows: int) -> None:
    create_topics(servers, f"probe-{load}", f"build-{load}")
    preload(servers, f"build-{load}", rows // 10, rows // 10, None, _SPAN_MS, seed=0)
    preload(servers, f"probe-{load}", rows, rows // 10, 1.25, _SPAN_MS, seed=1)


def _add(servers: Kafka, load: str) -> None:
    """A hundred probe rows whose build rows are stored."""
    events = [workload.Event(b"k%08d" % number, START_MS + _SPAN_MS, VALUE) for number in range(100)]
    workload.produce(client_options.librdkafka_options(servers), f"probe-{load}", events, 4)


@contextmanager
def _first_result(contender: service.Contender, command: list[str]) -> Iterator[tuple[float, int]]:
    """Starts a service or query. Yields the seconds to the end of its first batch with results, then kills it."""
    began = time.monotonic()
    with service.running(contender, command) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if (found := service.BATCH.search(line)) and int(found[3]):
                yield time.monotonic() - began, process.pid
                break
        else:
            raise RuntimeError(f"the service ended with {process.wait()}")
        _kill(process.pid)


def _store(contender: service.Contender, own: Path, rows: int, batch: int) -> None:
    with service.running(contender, service.run_command(own)) as process:
        for _ in service.samples_of(process, rows * 11 // 10, batch):
            pass
        time.sleep(20)  # for what is left of the rows
        _kill(process.pid)


def _kill(service_pid: int) -> None:
    for pid, _, _ in service.family(service_pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _remove_local_files(own: Path) -> None:
    for path in own.iterdir():
        if path.name not in ("checkpoint", "join.toml"):
            shutil.rmtree(path)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--rows", type=int, default=10_000_000, help="probe rows to store before the crash, or 0")
    service.add_other_options(parser)
    parser.add_argument("--spark", type=service.setting, action="append", default=[], metavar="KEY=VALUE")
    return parser.parse_args()


if __name__ == "__main__":
    main()
