"""The service survives kill -9 of the driver, of a Python worker and of the broker."""

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from balajoin.embedded import EmbeddedKafka
from balajoin.embedded.ports import free_ports
from balajoin.spark.jars import default_cache, fetch
from kafka_data import everything, headers_of, ids_by_both_clients
from oracle import Row, interval_join

pytestmark = [pytest.mark.broker, pytest.mark.spark]

BEFORE_MS, AFTER_MS = 20_000, 5_000
CONFIG = """\
name = "faults"
[kafka]
bootstrap_servers = "{bootstrap}"
[probe]
topic = "clicks"
[build]
topic = "shows"
[join]
before = "20 s"
after = "5 s"
lateness = "2 min"
idle_after = "5 min"
nodes = 2
[join.skew]
lease = "10 s"
[output]
topic = "joined"
id = "header"
[run]
checkpoint = "{folder}/checkpoint"
cache_dir = "{folder}/cache"
trigger = "200 ms"
master = "local[2,4]"
[page]
address = "127.0.0.1:{port}"
[topics]
partitions = 2
"""
_PATIENCE_S = 180


class Service:
    """Runs `balajoin run` in its own process, and restarts it when it is down."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._log = file.with_suffix(".log").open("ab")
        self.process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def keep_running(self) -> None:
        if self.process is None or self.process.poll() is not None:
            command = [sys.executable, "-m", "balajoin", "run", "-c", str(self._file)]
            self.process = subprocess.Popen(command, stdout=self._log, stderr=self._log, start_new_session=True)
            self.starts += 1

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def kill_a_worker(self) -> None:
        """Kills a Python worker of Spark as soon as one runs. After a restart that takes a while."""
        deadline = time.monotonic() + _PATIENCE_S
        while not (workers := self._workers()):
            assert time.monotonic() < deadline, "no Python worker started"
            self.keep_running()
            time.sleep(0.2)
        os.kill(workers[0], signal.SIGKILL)

    def _workers(self) -> list[int]:
        """The grandchildren of the driver's JVM."""
        assert self.process is not None
        daemons = [pid for jvm in _children(self.process.pid) for pid in _children(jvm)]
        return [pid for daemon in daemons for pid in _children(daemon)]

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(_PATIENCE_S)


def _children(pid: int) -> list[int]:
    listing = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True)
    return [int(child) for child in listing.stdout.split()]


@pytest.fixture
def broker_of_its_own(tmp_path: Path) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(tmp_path / "broker", fetch("broker", default_cache(os.environ))) as running:
        yield running


def produce(bootstrap: str, stop: threading.Event) -> None:
    """Sends two skewed streams until `stop` is set. Every row arrives once, even if the broker fails."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    rng = random.Random(1)
    sent = 0
    while not stop.is_set():
        for topic, count, hot in (("clicks", 10, 0.5), ("shows", 2, 0.05)):
            for _ in range(count):
                key = b"hot" if rng.random() < hot else b"%d" % rng.randrange(200)
                at = int(time.time() * 1000) - rng.randrange(30_000)
                producer.produce(topic, b"%s-%d" % (topic.encode(), sent), key, sent % 2, timestamp=at)
                sent += 1
        producer.poll(0)
        time.sleep(0.1)
    assert producer.flush(_PATIENCE_S) == 0


def rows_of(bootstrap: str, topic: str) -> list[Row]:
    return [
        Row(m.key(), m.timestamp()[1] * 1000, m.value(), m.partition(), m.offset())
        for m in everything(bootstrap, topic)
    ]


def ids_in(bootstrap: str) -> set[str]:
    return {headers_of(message)["balajoin-id"] for message in everything(bootstrap, "joined")}


def test_every_result_arrives_once_whatever_is_killed(broker_of_its_own: EmbeddedKafka, tmp_path: Path) -> None:
    bootstrap = broker_of_its_own.bootstrap_servers
    file = tmp_path / "join.toml"
    file.write_text(CONFIG.format(bootstrap=bootstrap, folder=tmp_path, port=free_ports(1)[0]))
    for command in ("topics", "check"):
        subprocess.run([sys.executable, "-m", "balajoin", command, "-c", str(file)], check=True)
    service = Service(file)
    stop = threading.Event()
    producing = threading.Thread(target=produce, args=(bootstrap, stop))
    producing.start()
    try:
        rng = random.Random(7)
        for fault in ("driver", "worker", "broker", "driver", "worker"):
            service.keep_running()
            _await_more_results(bootstrap, service)
            time.sleep(rng.random() * 2)
            if fault == "driver":
                service.kill()
            elif fault == "worker":
                service.kill_a_worker()
            else:
                broker_of_its_own.kill()
                time.sleep(1)
                broker_of_its_own.start()
        stop.set()
        producing.join()
        probe, build = rows_of(bootstrap, "clicks"), rows_of(bootstrap, "shows")
        pairs = interval_join(probe, build, BEFORE_MS * 1000, AFTER_MS * 1000)
        expected = {f"{p.partition}-{p.offset}-{b.partition}-{b.offset}": (p, b) for p, b in pairs}
        assert len(expected) > 1000
        deadline = time.monotonic() + _PATIENCE_S
        while len(ids_in(bootstrap)) < len(expected) and time.monotonic() < deadline:
            service.keep_running()
            time.sleep(1)
        assert_top_shows_the_hot_key(file)
        assert service.stop() == 0
        assert service.starts >= 3
        assert ids_by_both_clients(bootstrap, "joined") == sorted(expected)  # each id once
        for message in everything(bootstrap, "joined"):
            p, b = expected[headers_of(message)["balajoin-id"]]
            assert message.key() == p.key
            assert p.value in message.value()
            assert b.value in message.value()
        assert everything(bootstrap, "joined.late") == []
        assert_control_topics_tell(file, bootstrap)
        assert everything(bootstrap, "joined.dead-letter") == []
    finally:
        stop.set()
        if service.process and service.process.poll() is None:
            service.kill()


def assert_top_shows_the_hot_key(file: Path) -> None:
    """Reads the page of a service that was killed and restarted at the same address."""
    command = [sys.executable, "-m", "balajoin", "top", "-c", str(file)]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "faults: bala-join, 2 nodes" in shown
    assert re.search(r"hot +\d+% +(■□|□■)", shown), shown


def assert_control_topics_tell(file: Path, bootstrap: str) -> None:
    """`balajoin control tail` shows that the hot key was spread and its build rows were pulled."""
    command = [sys.executable, "-m", "balajoin", "control", "tail", "-c", str(file), "--lines", "100000"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    written = len(everything(bootstrap, "joined.control")) + len(everything(bootstrap, "joined.replicas"))
    assert len(lines) == written
    assert any(re.search(r"signal   batch \d+  to node [01]: key hot \(", line) for line in lines)
    assert any(re.search(r"replicas batch \d+  node [01] to node [01]: [1-9]\d* rows", line) for line in lines)
    assert not any("foreign" in line for line in lines)


def _await_more_results(bootstrap: str, service: Service) -> None:
    before = len(ids_in(bootstrap))
    deadline = time.monotonic() + _PATIENCE_S
    while len(ids_in(bootstrap)) <= before and time.monotonic() < deadline:
        service.keep_running()
        time.sleep(0.5)
    assert time.monotonic() < deadline, "results stopped coming"
