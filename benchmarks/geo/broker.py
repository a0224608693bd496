"""A Kafka broker on its own host."""

import os
import string
import time
from collections.abc import Sequence
from pathlib import Path

from balajoin.spark import java
from balajoin.spark.child import Child
from balajoin.spark.files import kafka_file
from geo.hosts import Host

_CLUSTER_ID = "YmFsYWpvaW4tYnJva2VyLQ"
_STARTED = "Kafka Server started (kafka.server.KafkaRaftServer)"
_START_WITHIN_S = 120
_FLAGS = ("-Xmx1g", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def start(host: Host, jars: Sequence[Path]) -> str:
    """Starts the broker, and returns its address for clients."""
    template = string.Template(kafka_file("server.properties").read_text(encoding="ascii"))
    ports = {"client_port": 9092, "internal_port": 9094, "controller_port": 9093}
    text = template.substitute(ports, data_dir=str(host.folder / "data"))
    settings = host.folder / "server.properties"
    settings.write_text(text.replace("127.0.0.1", host.address), encoding="ascii")
    log4j = f"-Dlog4j2.configurationFile={kafka_file('log4j2-broker.properties')}"
    command = [str(java.require(os.environ)), *_FLAGS, log4j, "-cp", os.pathsep.join(map(str, jars))]
    host.run([*command, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(settings)])
    log = host.folder / "broker.log"
    broker = host.start([*command, "kafka.Kafka", str(settings)], log)
    await_line(log, _STARTED, _START_WITHIN_S, broker)
    return f"{host.address}:9092"


def await_line(log: Path, text: str, within_s: float, process: Child) -> None:
    """Returns when the process has written the text."""
    deadline = time.monotonic() + within_s
    while text not in log.read_text(errors="replace"):
        if time.monotonic() > deadline or process.returncode is not None:
            end = log.read_text(errors="replace")[-3000:]
            raise TimeoutError(f"{log.name} did not say {text!r} within {within_s:.0f} s; it ends with:\n{end}")
        time.sleep(0.2)
