"""What the demo joins: views of products, a few of which get most views, with the changes of their prices."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from balajoin.config.models import Config, JoinSettings, Kafka, Output, Run, Skew, Stream, TopicLayout
from balajoin.embedded.workload import Event, zipf_keys
from balajoin.routing.rule import PolicyName

NAME = "balajoin-demo"
BEFORE_MS, AFTER_MS = 10_000, 2_000
LATENESS_MS = 5_000
PARTITIONS = 4
NODES = 4
EXPONENT = 1.25
VIEWS, PRICES, JOINED = "views", "prices", "views-with-prices"
POLICIES: tuple[PolicyName, ...] = ("hash", "bala-join")
SKEW = Skew(measure="rows")  # as in the paper: the demo shows how many rows each node gets, and B of them

_LARGEST_DELAY_MS = 2_000  # less than the allowed lateness: rows come out of order, but none too late
_VIEWS_A_PRICE = 10
_JAVA_FLAGS = (
    "-XX:-UsePerfData",  # it makes a file in /tmp, which stays there when the JVM is killed
    # As for the broker. With these, 15 s of demo took the JVM 17 CPU seconds instead of 37 (one run each, busy
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
        """So many that a view meets two or three price changes, whatever the rate."""
        return max(1, self.rate // 2)

    @property
    def largest_share(self) -> float:
        """The share of all views that the most popular product gets."""
        return float(1 / np.sum(1 / np.arange(1, self.products + 1) ** EXPONENT))

    @property
    def introduction(self) -> str:
        return (
            "[bold]balajoin demo[/]\n"
            f"  probe      {self.rate:,} views a second of {self.products:,} products; "
            f"one of them gets {self.largest_share:.0%} of all\n"
            f"  build      {self.prices_rate:,} changes of their prices a second\n"
            f"  join       each view with the changes of its product's price, from {BEFORE_MS // 1000} s\n"
            f"             before to {AFTER_MS // 1000} s after it\n"
            f"It is done twice, side by side, on the same two topics and {NODES} nodes each:\n"
            "  hash       every row goes where the hash of its key says, so the views of a\n"
            "             popular product pile up on one node\n"
            "  bala-join  views of popular products are spread over several nodes, and these\n"
            "             pull the prices they need from the node that has them\n"
            "In the end, both outputs are compared with the expected join.\n"
        )

    @property
    def views(self) -> "Rows":
        return Rows("view", self.seconds * self.rate, self.products, EXPONENT, seed=1)

    @property
    def prices(self) -> "Rows":
        return Rows("price", self.seconds * self.prices_rate, self.products, 0.0, seed=2)


@dataclass(frozen=True)
class Rows:
    """Rows of one stream. Every row is different, since its value holds its number."""

    name: str
    count: int
    products: int
    exponent: float
    seed: int

    def events(self, now_ms: Iterator[int]) -> Iterator[Event]:
        """Yields rows. A row's time is the clock's, less a random delay."""
        delays = np.random.default_rng(self.seed).integers(0, _LARGEST_DELAY_MS, self.count)
        products = zipf_keys(self.count, self.products, self.exponent, self.seed)
        for number, (product, delay, now) in enumerate(zip(products, delays, now_ms, strict=False)):
            yield Event(product_key(product).encode(), now - int(delay), b'{"%s": %d}' % (self.name.encode(), number))


def product_key(number: int) -> str:
    return f"product-{number}"


def configuration(servers: str, folder: Path, policy: PolicyName) -> Config:
    """Joins of different policies share only the topics that they read."""
    joined = f"{JOINED}.{policy}"
    return Config(
        name=f"{NAME}-{policy}",
        kafka=Kafka(bootstrap_servers=servers),
        probe=Stream(topic=VIEWS),
        build=Stream(topic=PRICES),
        join=JoinSettings(
            before=f"{BEFORE_MS} ms",
            after=f"{AFTER_MS} ms",
            lateness=f"{LATENESS_MS} ms",
            nodes=NODES,
            policy=policy,
            skew=SKEW,
        ),
        output=Output(topic=joined),
        run=Run(checkpoint=str(folder / policy / "checkpoint"), cache_dir=str(folder / policy / "cache")),
        topics=TopicLayout(partitions=PARTITIONS),
        spark=spark_conf(folder),
    )


def spark_conf(folder: Path) -> dict[str, str]:
    scratch = folder / "spark"
    scratch.mkdir(exist_ok=True)  # Java expects the folder to exist
    return {
        "spark.local.dir": str(scratch),
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir='{scratch}' {' '.join(_JAVA_FLAGS)}",
    }
