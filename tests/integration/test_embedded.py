import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from balajoin.embedded import EmbeddedKafka
from balajoin.embedded import broker as broker_module
from balajoin.embedded.ports import free_ports
from balajoin.errors import SetupError
from balajoin.spark.jars import default_cache, fetch

pytestmark = pytest.mark.broker

PARENT = """
import sys, time
from pathlib import Path
from balajoin.embedded import EmbeddedKafka
broker = EmbeddedKafka(Path(sys.argv[1]), [Path(jar) for jar in sys.argv[2:]])
broker.start()
print(broker.bootstrap_servers, flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def broker_jars() -> list[Path]:
    return fetch("broker", default_cache(os.environ))


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory, broker_jars: list[Path]) -> Iterator[EmbeddedKafka]:
    """A broker that these tests may stop and kill. Each test leaves it running."""
    folder = tmp_path_factory.mktemp("own") / "with space"
    with EmbeddedKafka(folder, broker_jars) as running:
        yield running


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def listen(port: int) -> socket.socket:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", port))
    server.listen()
    return server


def create_topic(broker: EmbeddedKafka, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(timeout=10)


def produce(broker: EmbeddedKafka, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all"})
    producer.produce(topic, value)
    assert producer.flush(20) == 0


def consume(broker: EmbeddedKafka, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "test"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        return [message.value() for message in consumer.consume(count, timeout=20) if message.error() is None]
    finally:
        consumer.close()


def topics(broker: EmbeddedKafka) -> set[str]:
    return set(AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=10).topics)


@pytest.mark.parametrize("end", [EmbeddedKafka.stop, EmbeddedKafka.kill], ids=["stop", "kill"])
def test_comes_back_with_its_data_and_address(own_broker: EmbeddedKafka, end: Callable[[EmbeddedKafka], None]) -> None:
    topic = f"survives-{own_broker.pid}"
    create_topic(own_broker, topic)
    produce(own_broker, topic, b"before")
    address, pid = own_broker.bootstrap_servers, own_broker.pid

    end(own_broker)
    assert own_broker.pid is None
    listen(port_of(own_broker.bootstrap_servers)).close()

    own_broker.start()
    assert own_broker.bootstrap_servers == address
    assert own_broker.pid != pid
    produce(own_broker, topic, b"after")
    assert consume(own_broker, topic, 2) == [b"before", b"after"]


def test_start_of_a_running_broker_changes_nothing(own_broker: EmbeddedKafka) -> None:
    pid = own_broker.pid
    own_broker.start()
    assert own_broker.pid == pid


def test_brokers_side_by_side_are_separate(own_broker: EmbeddedKafka, broker: EmbeddedKafka) -> None:
    create_topic(own_broker, "mine")
    create_topic(broker, "theirs")
    assert {"mine"} == topics(own_broker) & {"mine", "theirs"}
    assert {"theirs"} == topics(broker) & {"mine", "theirs"}


def test_a_folder_in_use_is_refused(own_broker: EmbeddedKafka, broker_jars: list[Path]) -> None:
    second = EmbeddedKafka(own_broker.folder, broker_jars)
    with pytest.raises(SetupError, match=r"^a broker runs in [^\n]*: stop it, or choose another folder$"):
        second.start()
    assert second.pid is None
    create_topic(own_broker, "unharmed")


def test_a_wrong_property_is_in_the_error(tmp_path: Path, broker_jars: list[Path]) -> None:
    broken = EmbeddedKafka(tmp_path, broker_jars, properties={"num.io.threads": "none"})
    with pytest.raises(SetupError, match=r"(?s)could not be formatted.*num\.io\.threads"):
        broken.start()


def test_a_port_lost_before_the_first_start_is_replaced(
    tmp_path: Path, broker_jars: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    offered = [free_ports(3), free_ports(3)]
    with listen(offered[0][0]):
        remaining = iter(offered)
        monkeypatch.setattr(broker_module, "free_ports", lambda count: next(remaining))
        with EmbeddedKafka(tmp_path, broker_jars) as started:
            assert port_of(started.bootstrap_servers) == offered[1][0]
            create_topic(started, "works")


def test_a_port_that_clients_know_is_never_replaced(own_broker: EmbeddedKafka) -> None:
    address = own_broker.bootstrap_servers
    own_broker.stop()
    with (
        listen(port_of(own_broker.bootstrap_servers)),
        pytest.raises(SetupError, match=r"(?s)ended while starting.*Address already in use"),
    ):
        own_broker.start()
    own_broker.start()
    assert own_broker.bootstrap_servers == address


def test_missing_topics_are_not_created(own_broker: EmbeddedKafka) -> None:
    admin = AdminClient({"bootstrap.servers": own_broker.bootstrap_servers})
    admin.list_topics("never-created", timeout=10)
    assert "never-created" not in topics(own_broker)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals a child when its parent dies")
def test_broker_ends_with_a_killed_parent(tmp_path: Path, broker_jars: list[Path]) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path), *map(str, broker_jars)]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as parent:
        try:
            assert parent.stdout
            address = parent.stdout.readline().strip()
            with pytest.raises(OSError, match="Address already in use"):
                listen(port_of(address))
        finally:
            parent.send_signal(signal.SIGKILL)
    wait_until_free(port_of(address))


def wait_until_free(port: int) -> None:
    """Waits for the port, which is taken as long as any thread of the broker lives. /proc does not show that."""
    deadline = time.monotonic() + 10
    while True:
        try:
            return listen(port).close()
        except OSError:
            assert time.monotonic() < deadline, "the broker outlived its parent"
            time.sleep(0.05)
