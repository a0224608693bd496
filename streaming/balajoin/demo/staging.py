"""The stage: a folder, a Kafka and a Spark, started side by side and gone in the end."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path

from pyspark.sql import SparkSession
from rich.markup import escape

from balajoin.config.models import Config
from balajoin.demo.display import Display
from balajoin.demo.ending import kill_children, kill_spark, temporary_folder
from balajoin.demo.scenario import NAME, NODES, POLICIES, configuration, spark_conf
from balajoin.embedded import EmbeddedKafka
from balajoin.errors import KafkaError
from balajoin.kafka import topics
from balajoin.service.stopping import Interrupted
from balajoin.spark import java
from balajoin.spark.jars import fetch
from balajoin.spark.session import create_session

StopIfAsked = Callable[[], None]
"""Raises once the user wants the end."""

_POLL_S = 0.1


def fetch_jars(cache: Path, display: Display) -> list[Path]:
    """The broker's. Those for Spark are fetched too: later nobody would see why it takes so long."""

    def notice(text: str) -> None:
        display.say(escape(text))

    java.require()
    fetch("connector", cache, notice=notice)
    return fetch("broker", cache, notice=notice)


class Stage:
    configs: list[Config]
    """Of each policy."""

    spark: SparkSession

    def __init__(self, ending: ExitStack, jars: list[Path], display: Display, stop_if_asked: StopIfAsked) -> None:
        self.display = display
        self._stop_if_asked = stop_if_asked
        self._folder = ending.enter_context(temporary_folder())
        self._broker = EmbeddedKafka(self._folder / "kafka", jars)
        ending.callback(self._broker.stop)
        ending.callback(kill_spark)

    def start(self, cache: Path, verbose: bool) -> None:
        with self.display.busy("starting Kafka and Spark"), ThreadPoolExecutor(2) as pool:
            starts = [pool.submit(self._start_kafka), pool.submit(self._start_spark, cache, verbose)]
            import balajoin.query  # noqa: F401 - two seconds, best spent while the others wait for their JVMs

            try:
                while wait(starts, _POLL_S).not_done:
                    self._stop_if_asked()
            except Interrupted:
                while wait(starts, _POLL_S).not_done:
                    kill_children()
                raise
            for start in starts:
                start.result()

    def check(self) -> None:
        """To be called now and then: raises when it is no use to go on."""
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
        self.display.say(f"[green]✓[/] {what} is up [dim]after {time.monotonic() - begin:.1f} s[/]")
