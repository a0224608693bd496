"""Broker, load, service and reader together, and the account of what went in and came out."""

import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from confluent_kafka.admin import AdminClient

from balajoin.broker import EmbeddedKafka
from kafka_data import everything
from soak import streams
from soak.service import Ending, Service, SoakError
from soak.streams import BUILD, OUTPUT, PROBE, Load, Output

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
before = "{before_ms} ms"
after = "{after_ms} ms"
lateness = "2 min"
idle_after = "10 min"
nodes = 2
policy = "{policy}"
{join}
[join.skew]
lease = "10 s"
[output]
topic = "{output}"
{delivery}
[run]
checkpoint = "{checkpoint}"
cache_dir = "{cache}"
trigger = "200 ms"
master = "local[2,4]"
[topics]
partitions = {partitions}
"""
PATIENCE_S = 180
_BROKER_AWAY = r"does not answer. Start again when it does|cannot reach Kafka at|not acknowledged in|Message timed out"


@dataclass
class Account:
    """Over all epochs: an epoch is the life of one checkpoint."""

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


class World:
    def __init__(
        self, folder: Path, broker: EmbeddedKafka, random: Random, options: Sequence[tuple[str, str]], load: Load
    ) -> None:
        self.folder, self.broker, self.random, self.load = folder, broker, random, load
        self._options = dict(options)
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
        join_type, delivery = self._options["type"], self._options["delivery"]
        text = CONFIG.format(
            bootstrap=self.bootstrap,
            kafka=kafka,
            probe=PROBE,
            build=BUILD,
            output=OUTPUT,
            before_ms=streams.BEFORE_MS,
            after_ms=streams.AFTER_MS,
            policy=self._options["policy"],
            join="" if join_type == "inner" else f'type = "{join_type}"',
            delivery="" if delivery == "at-least-once" else f'delivery = "{delivery}"',
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
        """A new epoch, with a new checkpoint and whatever is in the topics."""
        self.account.epochs += 1
        self.configure()
        self.create_topics()
        if self.output is None:
            self.output = Output(self.bootstrap)
        else:
            self.output.read(2)
            self.output.begin()
        self.load.resume()

    def keep_running(self, allowed: str = _BROKER_AWAY) -> None:
        """Starts the service if it is down. It may be down only for a reason that it gave, and that is allowed."""
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
        """The service stops by itself, with one error, which names cause and action; and stops again if restarted."""
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
                raise SoakError(f"no more results:\n{self.service.excerpt}")

    # --- the account -------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Stops load and service when all results are out, and adds the epoch to the account."""
        assert self.output is not None
        self.load.pause()
        probe, build = (streams.rows_of(self.bootstrap, topic) for topic in (PROBE, BUILD))
        expected = streams.EXPECTED[self._options["type"]](probe, build)
        deadline = time.monotonic() + PATIENCE_S
        while not expected.keys() <= self.output.seen.keys() and time.monotonic() < deadline:
            self.keep_running()
            self.output.read()
        if self.service.is_running:
            self.service.stop()
        self.output.read(3)
        seen = self.output.seen
        account = self.account
        account.rows_in += len(probe) + len(build)
        account.expected += len(expected)
        account.found += len(seen)
        account.lost += len(expected.keys() - seen.keys())
        account.unexpected += len(seen.keys() - expected.keys())
        account.wrong += sum(
            key != expected[id_][0].key or not all(row.value in value for row in expected[id_])
            for id_, (key, value) in self.output.values.items()
            if id_ in expected
        )
        account.repeats += seen.total() - len(seen)
        account.late, account.dead = (
            len(everything(self.bootstrap, f"{OUTPUT}.{kind}")) for kind in ("late", "dead-letter")
        )
        if self.is_bad():
            raise SoakError(f"results are not what they must be: {account}")

    def is_bad(self) -> bool:
        account = self.account
        repeated = account.repeats if self._options["delivery"] == "exactly-once" else 0
        return any((account.lost, account.unexpected, account.wrong, account.late, account.dead, repeated))

    def close(self) -> None:
        if self.service.is_running:
            self.service.kill()
        if self.output:
            self.output.close()
