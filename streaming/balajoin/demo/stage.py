"""The stage: a folder, a Kafka and a Spark, started side by side. Neither a process nor a file stays behind."""

import logging
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession
from rich.markup import escape

from balajoin.config.models import Config
from balajoin.demo.scenario import NAME, NODES, POLICIES, configuration, spark_conf
from balajoin.demo.screen import Screen
from balajoin.embedded import EmbeddedKafka
from balajoin.errors import KafkaError
from balajoin.kafka import topics
from balajoin.service.stopping import Interrupted
from balajoin.spark import java
from balajoin.spark.jars import fetch
from balajoin.spark.session import create_session

_POLL_S = 0.1
_REMOVE_WITHIN_S = 10.0


def fetch_jars(cache: Path, screen: Screen) -> list[Path]:
    """Returns the broker's jars. Fetches Spark's too, so that the user sees what takes so long."""

    def notice(text: str) -> None:
        screen.say(escape(text))

    java.require()
    fetch("connector", cache, notice=notice)
    return fetch("broker", cache, notice=notice)


class Stage:
    configs: list[Config]
    """One for each policy."""

    spark: SparkSession

    def __init__(self, ending: ExitStack, jars: list[Path], screen: Screen, stop_if_asked: Callable[[], None]) -> None:
        """`stop_if_asked` raises `Interrupted` once the user wants the end."""
        self._screen = screen
        self._stop_if_asked = stop_if_asked
        self._folder = ending.enter_context(_temporary_folder())
        self._broker = EmbeddedKafka(self._folder / "kafka", jars)
        ending.callback(self._broker.stop)
        ending.callback(_kill_spark)

    def start(self, cache: Path, verbose: bool) -> None:
        with self._screen.busy("starting Kafka and Spark"), ThreadPoolExecutor(2) as pool:
            starts = [pool.submit(self._start_kafka), pool.submit(self._start_spark, cache, verbose)]
            import balajoin.query  # noqa: F401 - takes two seconds, best spent while the others wait for their JVMs

            try:
                while wait(starts, _POLL_S).not_done:
                    self._stop_if_asked()
            except Interrupted:
                while wait(starts, _POLL_S).not_done:
                    _kill_children()
                raise
            for start in starts:
                start.result()
        self._warm_up = _start_workers(self.spark)

    @property
    def is_warm(self) -> bool:
        """Whether Spark's Python workers are up."""
        return not self._warm_up.is_alive()

    def check(self) -> None:
        """To be called now and then. Raises when the user wants the end, or when Kafka has ended."""
        self._stop_if_asked()
        if self._broker.pid is None:
            raise KafkaError("the demo's Kafka ended by itself: free some memory and run it again")

    def _start_kafka(self) -> None:
        begin = time.monotonic()
        self._broker.start()
        servers = self._broker.bootstrap_servers
        self.configs = [configuration(servers, self._folder, policy) for policy in POLICIES]
        shapes = {topic: shape for config in self.configs for topic, shape in topics.shapes(config).items()}
        topics.create_missing(self.configs[0].kafka, shapes, 1)
        self._say_up(f"Kafka at {servers}", begin)

    def _start_spark(self, cache: Path, verbose: bool) -> None:
        begin = time.monotonic()
        conf = spark_conf(self._folder)
        self.spark = create_session(
            master=None, app_name=NAME, spark_conf=conf, cache=cache, nodes=NODES, verbose=verbose
        )
        self._say_up(f"Spark {self.spark.version}", begin)

    def _say_up(self, what: str, begin: float) -> None:
        self._screen.say(f"[green]✓[/] {what} is up [dim]after {time.monotonic() - begin:.1f} s[/]")


def _start_workers(spark: SparkSession) -> threading.Thread:
    """Brings Spark's Python workers up before there is a row for them, in a thread that ends once they are up.

    They load pandas, Arrow and the kernels, which are compiled at their first use after an installation. Left to the
    first batch, that made the batch take 20 s instead of 6 (2 cores, busy). Where the workers cannot start, the first
    batch tells why.
    """

    def run() -> None:
        cores = spark.sparkContext.defaultParallelism
        with suppress(Exception):
            spark.range(0, cores, 1, cores).mapInArrow(iter, "id bigint").collect()

    thread = threading.Thread(target=run, name="demo-workers", daemon=True)
    thread.start()
    return thread


def _kill_spark() -> None:
    """Ends the JVM, and with it all Python workers. Nothing that they would still write is of use."""
    _silence_spark()
    context, gateway = SparkContext._active_spark_context, SparkContext._gateway
    if context is not None:
        context._accumulatorServer.shutdown()  # it would print a trace
    if gateway is not None:
        gateway.proc.kill()
        gateway.proc.wait()


def _kill_children() -> None:
    """Ends all child processes, also those that no object stands for yet. Without /proc it does nothing."""
    _silence_spark()
    for child in _children():
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def _children() -> Iterator[int]:
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            _state, parent, *_ = (process / "stat").read_text().rpartition(")")[2].split()
            if int(parent) == os.getpid():
                yield int(process.name)


def _silence_spark() -> None:
    """Workers complain when their JVM is gone."""
    logging.getLogger("balajoin.spark").setLevel(logging.CRITICAL)


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="balajoin-demo-"))
    try:
        yield folder
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    """Workers end a moment after their JVM, and may write until then."""
    deadline = time.monotonic() + _REMOVE_WITHIN_S
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)
        if time.monotonic() > deadline:
            return
        time.sleep(0.02)
