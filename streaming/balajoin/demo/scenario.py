"""What the demo joins: views of products, few of which most people look at, with the changes of their prices."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from balajoin.settings import Config, JoinSettings, Kafka, Output, Run, Stream, TopicLayout
from balajoin.workload import Event, zipf_keys

NAME = "balajoin-demo"
BEFORE_MS, AFTER_MS = 10_000, 2_000
LATENESS_MS = 5_000
PARTITIONS = 4
NODES = 4
EXPONENT = 1.25
VIEWS, PRICES, JOINED = "views", "prices", "views-with-prices"

_LARGEST_DELAY_MS = 2_000  # less than the allowed lateness: rows come out of order, but none too late
_VIEWS_A_PRICE = 10
_JAVA_FLAGS = (
    "-XX:-UsePerfData",  # a file in /tmp, which stays there when a JVM is killed
    # As the broker has them. With these, 15 s of demo took the JVM 17 CPU seconds instead of 37 (one run each, busy
    # machine).
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
)


@dataclass(frozen=True)
class Scenario:
    seconds: int
    rate: int
    """Views per second."""

    @property
    def prices_rate(self) -> int:
        return max(1, self.rate // _VIEWS_A_PRICE)

    @property
    def products(self) -> int:
        """As many as give a view two or three price changes, whatever the rate."""
        return max(1, self.rate // 2)

    @property
    def introduction(self) -> str:
        return (
            "[bold]balajoin demo[/]\n"
            f"  probe   {self.rate:,} views a second of {self.products:,} products, some far more popular than others: "
            f"Zipf({EXPONENT})\n"
            f"  build   {self.prices_rate:,} changes of their prices a second\n"
            f"  join    each view with the changes of its product's price, from {BEFORE_MS // 1000} s before to "
            f"{AFTER_MS // 1000} s after it\n"
            f"  nodes   {NODES}; a row goes where its key's hash says\n"
        )

    @property
    def views(self) -> "Rows":
        return Rows("view", self.seconds * self.rate, self.products, EXPONENT, seed=1)

    @property
    def prices(self) -> "Rows":
        return Rows("price", self.seconds * self.prices_rate, self.products, 0.0, seed=2)


@dataclass(frozen=True)
class Rows:
    """Rows of one stream. Each is unlike any other: its value holds its number."""

    name: str
    count: int
    products: int
    exponent: float
    seed: int

    def events(self, now_ms: Iterator[int]) -> Iterator[Event]:
        """Each takes its time from the clock, less a random delay."""
        delays = np.random.default_rng(self.seed).integers(0, _LARGEST_DELAY_MS, self.count)
        products = zipf_keys(self.count, self.products, self.exponent, self.seed)
        for number, (product, delay, now) in enumerate(zip(products, delays, now_ms, strict=False)):
            yield Event(b"product-%d" % product, now - int(delay), b'{"%s": %d}' % (self.name.encode(), number))


def configuration(servers: str, folder: Path) -> Config:
    return Config(
        name=NAME,
        kafka=Kafka(bootstrap_servers=servers),
        probe=Stream(topic=VIEWS),
        build=Stream(topic=PRICES),
        join=JoinSettings(
            before=f"{BEFORE_MS} ms",
            after=f"{AFTER_MS} ms",
            lateness=f"{LATENESS_MS} ms",
            nodes=NODES,
            dead_letter_topic=f"{JOINED}.dead-letter",
            late_topic=f"{JOINED}.late",
            control_topic=f"{JOINED}.control",
            replica_topic=f"{JOINED}.replicas",
        ),
        output=Output(topic=JOINED),
        run=Run(checkpoint=str(folder / "checkpoint"), cache_dir=str(folder / "cache")),
        topics=TopicLayout(partitions=PARTITIONS),
        spark=spark_conf(folder),
    )


def spark_conf(folder: Path) -> dict[str, str]:
    scratch = folder / "spark"
    scratch.mkdir(exist_ok=True)  # Java takes for granted that it is there
    return {
        "spark.local.dir": str(scratch),
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir='{scratch}' {' '.join(_JAVA_FLAGS)}",
    }
