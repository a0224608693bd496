"""Where the CPU time of the service goes: `balajoin run` under load, its JVM by async-profiler, its Python by py-spy.

Writes the stacks to `artifacts/profile/` (collapsed, for any flame graph viewer) and prints each part's share of the
CPU time. It profiles one run after some batches to warm up, while all rows are in Kafka beforehand, as `service.py`
does.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import service
from bench import machine
from rich.console import Console
from rich.table import Table

from balajoin.config.models import Kafka
from balajoin.embedded import EmbeddedKafka
from balajoin.spark import java
from balajoin.spark.jars import default_cache, fetch, fetch_listed

_HERE = Path(__file__).parents[1]
_SAMPLES_PER_S = 200
# A stack counts for the first part that has one of the stack's words.
_JVM_PARTS = (
    ("compilers", ("CompileBroker", "C2Compiler", "Compilation::", "CompilerThread")),
    (
        "garbage collectors",
        (
            "G1",
            "GangWorker",
            "WorkerThread::run",
            "GCTask",
            "SerialHeap",
            "ParallelScavenge",
            "VMThread",
            "PSParallel",
            "GenCollect",
        ),
    ),
    ("Kafka: fetch and decompress", ("KafkaDataConsumer", "kafka/clients", "kafka.clients")),
    (
        "rows to Python: Arrow",
        (
            "ArrowWriter",
            "ArrowPythonRunner",
            "ArrowStreamWriter",
            "writeNextBatchToArrowStream",
            "writeNextInputToArrowStream",
            "ArrowFieldWriter",
            "PythonArrowInput",
            "org/apache/arrow",
        ),
    ),
    (
        "rows from Python",
        ("PythonArrowOutput", "ReaderIterator", "ArrowStreamReader", "ArrowColumnVector", "ColumnarRow"),
    ),
    ("state: served to Python", ("TransformWithStateInPySparkStateServer", "StateServer")),
    ("state store", ("rocksdb", "RocksDB", "statestore", "StateStore", "streaming/state")),
    ("shuffle: write", ("ShuffleWriter", "ShuffleExternalSorter", "DiskBlockObjectWriter", "ShuffleExchange")),
    ("shuffle: read", ("ShuffleBlockFetcher", "ShuffleReader", "BlockStoreShuffleReader", "ShuffledRowRDD")),
    ("sort before an operator", ("UnsafeExternalRowSorter", "SortExec", "UnsafeExternalSorter", "GroupedIterator")),
    ("SQL over records", ("GeneratedIterator", "GeneratedClass", "UnsafeProjection", "mapInArrow", "MapInBatch")),
    (
        "driver: plan and checkpoint",
        (
            "MicroBatchExecution",
            "StreamExecution",
            "QueryExecution",
            "dag-scheduler",
            "DAGScheduler",
            "ProgressReporter",
        ),
    ),
    ("tasks: the rest", ("executor/Executor$TaskRunner", "TaskRunner.run")),
)
_PYTHON_PARTS = (
    ("pack: Arrow batches to blocks", ("edge/pack.py",)),
    ("route: sketch and placement", ("routing/",)),
    ("node: write results", ("sinks/transaction.py",)),
    ("node: make records of results", ("sinks/values.py",)),
    (
        "node: merge and write runs",
        ("_merge (", "close (balajoin/compute/store.py", "RunFiles", "_written (", "write (balajoin/compute/runs.py"),
    ),
    (
        "node: state to and from Spark",
        (
            "StateBlocks",
            "put (balajoin/compute/batch.py",
            "get (balajoin/compute/batch.py",
            "stateful_processor_api_client",
        ),
    ),
    ("node: find and make pairs", ("compute/index.py", "compute/matches.py", "compute/pairs.py")),
    ("node: store rows", ("compute/store.py", "compute/runs.py")),
    ("node: the rest", ("compute/",)),
    ("from and to Spark", ("pyspark/",)),
)


def main() -> None:
    options = _options()
    folder = Path(tempfile.mkdtemp(prefix="balajoin-profile-"))
    results = _HERE / "artifacts" / "profile"
    results.mkdir(parents=True, exist_ok=True)
    try:
        with EmbeddedKafka(folder / "kafka", fetch("broker", default_cache(os.environ))) as broker:
            servers = Kafka(bootstrap_servers=broker.bootstrap_servers)
            service.fill(servers, options.load, options)
            with service.service(
                service.Contender(_HERE), "profiled", options.load, servers, folder, options
            ) as running:
                _profile(running, results, options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _profile(running: "subprocess.Popen[str]", results: Path, options: argparse.Namespace) -> None:
    samples = service.samples_of(running, options.rows * 11 // 10, options.batch)
    for _ in range(options.warm_up):
        next(samples)
    begin = service.cpu_of(running.pid)
    counted: list[service.Sample] = []
    drain = threading.Thread(target=lambda: counted.extend(samples), daemon=True)
    drain.start()
    began = time.monotonic()
    jvm = next(pid for pid, name, _ in service.family(running.pid) if name.startswith("java"))
    stacks = {"jvm": results / "jvm.collapsed", "python": results / "python.collapsed"}
    profilers = [
        subprocess.Popen(_async_profiler(jvm, stacks["jvm"], options.seconds), stdout=subprocess.DEVNULL),
        subprocess.Popen(_py_spy(running.pid, stacks["python"], options.seconds), stdout=subprocess.DEVNULL),
    ]
    for profiler in profilers:
        if profiler.wait(options.seconds + 60):
            raise SystemExit(f"{profiler.args} ended with {profiler.returncode}")  # type: ignore[str-bytes-safe]
    used = service.cpu_of(running.pid) - begin
    elapsed = time.monotonic() - began
    if not counted or not drain.is_alive():
        raise SystemExit("the rows ran out while profiling: give more --rows or fewer --seconds")
    rows = sum(sample.rows for sample in counted)
    console = Console(width=120)
    console.print(
        f"{rows:,} rows in {elapsed:.0f} s; CPU seconds: JVM {used.jvm:.1f}, Python {used.python:.1f}; {machine()}. "
        "The profilers' own work is in these times."
    )
    console.print(_table("JVM", _shares(stacks["jvm"], _JVM_PARTS)))
    console.print(_table("Python", _shares(stacks["python"], _PYTHON_PARTS)))
    console.print(f"stacks: {', '.join(str(path.relative_to(_HERE)) for path in stacks.values())}")


def _async_profiler(pid: int, to: Path, seconds: int) -> list[str]:
    (jar,) = fetch_listed(Path(__file__).with_name("profiler.xml"), default_cache(os.environ))
    interval = str(1_000_000_000 // _SAMPLES_PER_S)
    where = ["-e", "itimer", "-i", interval, "-t", "-o", "collapsed", "-f", str(to), "-d", str(seconds)]
    return [str(java.require()), "-jar", str(jar), "profiler", *where, str(pid)]


def _py_spy(pid: int, to: Path, seconds: int) -> list[str]:
    program = shutil.which("py-spy", path=str(Path(sys.executable).parent))
    if program is None:
        raise SystemExit("py-spy is not installed: run make profile, which installs it")
    where = ["-f", "raw", "-o", str(to), "-d", str(seconds), "-r", str(_SAMPLES_PER_S)]
    return [program, "record", "--subprocesses", "--pid", str(pid), *where]


def _shares(stacks: Path, parts: tuple[tuple[str, tuple[str, ...]], ...]) -> Counter[str]:
    shares: Counter[str] = Counter()
    for line in stacks.read_text(errors="replace").splitlines():
        stack, _, count = line.rpartition(" ")
        name = next((name for name, words in parts if any(word in stack for word in words)), "other")
        shares[name] += int(count)
    return shares


def _table(title: str, shares: Counter[str]) -> Table:
    table = Table(title=title)
    table.add_column("part")
    table.add_column("share of its CPU time", justify="right")
    for name, count in shares.most_common():
        table.add_row(name, f"{count / shares.total():.1%}")
    return table


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    service.add_load_options(parser, rows=8_000_000, warm_up=5)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--load", choices=service.EXPONENTS, default="zipf")
    return parser.parse_args()


if __name__ == "__main__":
    main()
