"""Holds the broker, load, service and reader, and the account of rows sent and results read."""

import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from confluent_kafka import OFFSET_END, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from balajoin.embedded import EmbeddedKafka
from kafka_data import everything
from soak import streams
from soak.service import Ending, Service, SoakError
from soak.streams import BUILD, OUTPUT, PARTITIONS, PROBE, Load, Output

CONFIG = """\
name = "soak"
[kafka]
bootstrap_servers = "{bootstrap}"
{kafka}
[probe]
topic = "{probe}"
[build]
topic = "{build}"
[join]
type = "{type}"
before = "{before_ms} ms"
after = "{after_ms} ms"
lateness = "2 min"
idle_after = "10 min"
nodes = 2
policy = "{policy}"
[join.skew]
lease = "10 s"
threshold = {threshold}
balance = {balance}
[output]
topic = "{output}"
id = "header"
delivery = "{delivery}"
[run]
checkpoint = "{checkpoint}"
cache_dir = "{cache}"
trigger = "200 ms"
master = "local[2,4]"
[topics]
partitions = {partitions}
"""
PATIENCE_S = 180
TIMEOUT_S = 30
_LATER_MS = 300_000
_BROKER_AWAY = (
    r"does not answer. Start again when it does|cannot reach Kafka at"
    r"|cannot write (?:results )?to topic \S+: .*(?:not acknowledged in|timed out|Timed out|transport|Transport)"
)


@dataclass
class Account:
    """Counts over all epochs. An epoch is the life of one checkpoint."""

    faults: Counter[str] = field(default_factory=Counter)
    endings: Counter[str] = field(default_factory=Counter)
    rows_in: int = 0
    expected: int = 0
    found: int = 0
    lost: int = 0
    unexpected: int = 0
    wrong: int = 0
    repeats: int = 0
    late: int = 0
    dead: int = 0
    epochs: int = 0


@dataclass(frozen=True)
class Skew:
    """Settings that may change at every start with the same checkpoint."""

    policy: str
    threshold: float = 0.01
    balance: float = 0.2


class World:
    def __init__(
        self, folder: Path, broker: EmbeddedKafka, random: Random, options: Sequence[tuple[str, str]], load: Load
    ) -> None:
        self.folder, self.broker, self.random, self.load = folder, broker, random, load
        self._options = dict(options)
        self.skew = Skew(self._options["policy"])
        self.bootstrap = broker.bootstrap_servers
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        self.file = folder / "join.toml"
        self.account = Account()
        self.service = Service(self.file)
        self.output: Output | None = None

    # --- the service -------------------------------------------------------------------------------------------------

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoints" / f"{self.account.epochs}"

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    def configure(self, kafka: str = "") -> None:
        text = CONFIG.format(
            bootstrap=self.bootstrap,
            kafka=kafka,
            probe=PROBE,
            build=BUILD,
            output=OUTPUT,
            before_ms=streams.BEFORE_MS,
            after_ms=streams.AFTER_MS,
            policy=self.skew.policy,
            threshold=self.skew.threshold,
            balance=self.skew.balance,
            type=self._options["type"],
            delivery=self._options["delivery"],
            checkpoint=self.checkpoint,
            cache=self.cache,
            partitions=streams.PARTITIONS,
        )
        self.file.write_text(text)

    def create_topics(self) -> None:
        subprocess.run(
            [sys.executable, "-m", "balajoin", "topics", "-c", str(self.file)], check=True, stdout=subprocess.DEVNULL
        )

    def begin(self) -> None:
        """Begins a new epoch, with a new checkpoint and empty topics."""
        self.account.epochs += 1
        self.configure()
        self.create_topics()
        self.delete_records(PROBE, BUILD)
        if self.output is None:
            self.output = Output(self.bootstrap)
        else:
            self.output.read(2)
            self.output.begin()
        self.load.resume()

    def delete_records(self, *topics: str) -> None:
        """Deletes all records of these topics."""
        ends = [TopicPartition(topic, p, OFFSET_END) for topic in topics for p in range(PARTITIONS)]
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                for deleted in self.admin.delete_records(ends).values():
                    deleted.result(TIMEOUT_S)
                return
            except KafkaException:  # a new topic has no leader for a moment
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def send(self, records: Iterable[tuple[str, bytes, int, int]]) -> None:
        """Sends extra rows. A record is its topic, key, size of value, and how much later than now it is."""
        failures: list[object] = []
        producer = Producer({"bootstrap.servers": self.bootstrap, "message.max.bytes": 2_000_000, "log_level": 0})
        now_ms = int(time.time() * 1000)
        for n, (topic, key, size, later_ms) in enumerate(records):
            producer.produce(
                topic,
                b"x" * size,
                key,
                n % PARTITIONS,
                timestamp=now_ms + later_ms,
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
            producer.poll(0)
        if producer.flush(TIMEOUT_S) or failures:
            raise SoakError(f"the broker did not take rows: {failures[:1]}")

    def keep_running(self, allowed: str = _BROKER_AWAY) -> None:
        """Starts the service if it is down. It may be down only with an error that `allowed` matches."""
        if self.service.is_running:
            return
        if ending := self.service.ending():
            self.note(ending)
            if not ending.was_killed and not re.search(allowed, ending.error):
                raise SoakError(f"the service ended with {ending}:\n{self.service.excerpt}")
        self.service.start()

    def note(self, ending: Ending) -> None:
        self.account.endings[ending.error or f"ended by signal {-ending.code}"] += 1

    def await_refusal(self, pattern: str) -> None:
        """Waits until the service stops with one error that names cause and remedy. It must stop again if restarted."""
        for attempt in range(2):
            if attempt:
                self.service.start()
            ending = self.service.await_ending()
            self.note(ending)
            if ending.code <= 0 or "\n" in ending.error or not re.search(pattern, ending.error):
                raise SoakError(f"expected an error like {pattern!r}, not {ending}:\n{self.service.excerpt}")

    def await_results(self, more: int = 1, allowed: str = _BROKER_AWAY) -> None:
        assert self.output is not None
        wanted = self.output.read() + more
        deadline = time.monotonic() + PATIENCE_S
        while self.output.read() < wanted:
            self.keep_running(allowed)
            if time.monotonic() > deadline:
                raise SoakError(f"results stopped coming:\n{self.service.excerpt}")

    # --- the account -------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Stops load and service after all results have come, and adds the epoch to the account."""
        assert self.output is not None
        self.load.pause()
        type_ = self._options["type"]
        expected = streams.expected(self.bootstrap, type_)
        deadline = time.monotonic() + PATIENCE_S
        while not expected.keys() <= self.output.seen.keys() and time.monotonic() < deadline:
            self.keep_running()
            if type_ != "inner":  # rows are known to have no match only after event time has passed
                self.send([(topic, b"end", 3, _LATER_MS) for topic in (PROBE, BUILD) for _ in range(PARTITIONS)])
                expected = streams.expected(self.bootstrap, type_)
            self.output.read(2)
        if self.service.is_running:
            self.service.stop()
        self.output.read(3)
        seen = self.output.seen
        account = self.account
        account.rows_in += sum(len(streams.rows_of(self.bootstrap, topic)) for topic in (PROBE, BUILD))
        account.expected += len(expected)
        account.found += len(seen)
        account.lost += len(expected.keys() - seen.keys())
        account.unexpected += len(seen.keys() - expected.keys())
        account.wrong += sum(
            any(row.key != key or row.value not in value for row in expected[id_])
            for id_, (key, value) in self.output.values.items()
            if id_ in expected
        )
        account.repeats += seen.total() - len(seen)
        account.late, account.dead = (
            len(everything(self.bootstrap, f"{OUTPUT}.{kind}")) for kind in ("late", "dead-letter")
        )
        if self.is_bad():
            raise SoakError(f"results differ from those expected: {account}")

    def is_bad(self) -> bool:
        account = self.account
        repeated = account.repeats if self._options["delivery"] == "exactly-once" else 0
        return any((account.lost, account.unexpected, account.wrong, account.late, account.dead, repeated))

    def close(self) -> None:
        if self.service.is_running:
            self.service.kill()
        if self.output:
            self.output.close()
