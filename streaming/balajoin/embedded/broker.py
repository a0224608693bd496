"""A single-node Kafka broker as a child process."""

import fcntl
import json
import os
import re
import string
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple, Self

from confluent_kafka import KafkaException

from balajoin.embedded.ports import free_ports
from balajoin.errors import SetupError
from balajoin.kafka import clients
from balajoin.spark import java
from balajoin.spark.child import Child
from balajoin.spark.files import kafka_file

_CLUSTER_ID = "YmFsYWpvaW4tYnJva2VyLQ"
_START_TIMEOUT_S = 90.0
_STOP_TIMEOUT_S = 20.0
_PORT_ATTEMPTS = 5
_EXCERPT_LINES = 15
_STACK_FRAME = re.compile(r"\s+(at |\.\.\. \d+ more)")

# Kafka logs this line when all listeners are bound. Connecting to the clients' port proves less: if another process
# holds that port, that process accepts, and the broker's other listeners answer for a moment before the broker ends.
_STARTED = b"Kafka Server started (kafka.server.KafkaRaftServer)"

# CPU seconds until the first answer, median of 4 alternating starts on 2 busy cores: 7.2 with none of these, 4.1 with
# the first two, 3.4 with all. The first turns off the optimising compiler. That costs nothing within a broker's first
# three million records: 0.8-1.8 CPU seconds per million, against 1.1-4.0 with that compiler. More was not measured.
_QUICK_START_FLAGS = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",  # the checksums of the jars were verified when they were fetched
)


class _Ports(NamedTuple):
    client: int
    internal: int
    controller: int


class EmbeddedKafka:
    """A broker with its data, settings and log in `folder`. Its loopback ports stay the same after the first start.

    `properties` are added to kafka/server.properties. To secure the clients' listener, override
    `listener.security.protocol.map` for CLIENT; `internal_servers` stays plaintext for set-up.
    """

    def __init__(
        self,
        folder: Path,
        jars: Sequence[Path],
        *,
        heap_mb: int = 512,
        properties: Mapping[str, str] | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.folder = folder.absolute()
        self.log_file = self.folder / "broker.log"
        self._class_path = os.pathsep.join(map(str, jars))
        self._heap_mb = heap_mb
        self._properties = dict(properties or {})
        self._environ = environ
        self._ports: _Ports | None = None
        self._child: Child | None = None

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self._assigned_ports.client}"

    @property
    def internal_servers(self) -> str:
        """The listener that needs neither TLS nor a login, even if `properties` secure the clients' listener."""
        return f"127.0.0.1:{self._assigned_ports.internal}"

    @property
    def pid(self) -> int | None:
        """The broker's process id; None if the broker does not run."""
        return self._child.pid if self._child and self._child.returncode is None else None

    def start(self) -> None:
        """Returns when the broker answers. After `stop` or `kill`, the broker starts with the same ports and data."""
        if self.pid is not None:
            return
        java_command = java.require(self._environ)
        self.folder.mkdir(parents=True, exist_ok=True)
        ports_are_known_to_clients = self._ports is not None
        for attempts_left in reversed(range(_PORT_ATTEMPTS)):
            self._ports = self._ports or _Ports(*free_ports(3))
            log_start = self._log_size()
            try:
                self._launch(java_command, self._ports)
                return
            except SetupError:
                port_was_taken = b"Address already in use" in self._log_since(log_start)
                if ports_are_known_to_clients or not port_was_taken or not attempts_left:
                    raise
                self._ports = None

    def stop(self) -> None:
        """Shuts the broker down, and kills it if that takes too long."""
        if self._child:
            self._child.terminate()
            if not self._child.wait(_STOP_TIMEOUT_S):
                self.kill()

    def kill(self) -> None:
        """Ends the broker as a power cut would."""
        if self._child:
            self._child.kill()
            self._child.wait()

    def restart(self) -> None:
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _assigned_ports(self) -> _Ports:
        if self._ports is None:
            raise SetupError("the broker has no ports yet: call start() first, or use the broker in a with statement")
        return self._ports

    def _launch(self, java_command: Path, ports: _Ports) -> None:
        with self._locked_log() as log:
            settings = self._write_settings(ports)
            try:
                if not (self.folder / "data" / "meta.properties").exists():
                    self._run(log, java_command, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", settings)
                    self._await_format()
                self._run(log, java_command, "kafka.Kafka", settings)
                self._await_answer()
            except BaseException:
                self.kill()
                raise

    @contextmanager
    def _locked_log(self) -> Iterator[IO[bytes]]:
        """Locks the folder, because Kafka itself locks it only after writing metadata, which a second broker destroys.

        The broker inherits this file as its output, and the lock with it. So the lock lasts as long as the broker.
        """
        with self.log_file.open("ab") as log:
            try:
                fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise SetupError(f"a broker runs in {self.folder}: stop it, or choose another folder") from None
            yield log

    def _write_settings(self, ports: _Ports) -> str:
        template = string.Template(kafka_file("server.properties").read_text(encoding="ascii"))
        text = template.substitute(
            client_port=ports.client,
            internal_port=ports.internal,
            controller_port=ports.controller,
            data_dir=_escaped(str(self.folder / "data")),
        )
        extra = "".join(f"{name}={_escaped(value)}\n" for name, value in self._properties.items())
        settings = self.folder / "server.properties"
        settings.touch(mode=0o600)  # `properties` may hold passwords
        settings.write_text(f"{text}\n{extra}", encoding="ascii")
        return str(settings)

    def _run(self, log: IO[bytes], java_command: Path, main_class: str, *arguments: str) -> None:
        self._run_log_start = self._log_size()
        flags = (
            *_QUICK_START_FLAGS,
            f"-Xmx{self._heap_mb}m",
            f"-Dlog4j2.configurationFile={kafka_file('log4j2-broker.properties')}",
        )
        self._child = Child([str(java_command), *flags, "-cp", self._class_path, main_class, *arguments], log)

    def _await_format(self) -> None:
        assert self._child
        if not self._child.wait(_START_TIMEOUT_S):
            raise self._failure(f"formatting the broker's storage took over {_START_TIMEOUT_S:.0f} s")
        if self._child.returncode != 0:
            raise self._failure("the broker's storage could not be formatted")

    def _await_answer(self) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not (_STARTED in self._log_since(self._run_log_start) and _answers(self.internal_servers)):
            if self.pid is None:
                raise self._failure("the Kafka broker ended while starting")
            if time.monotonic() > deadline:
                raise self._failure(f"the Kafka broker did not answer within {_START_TIMEOUT_S:.0f} s")
            time.sleep(0.02)

    def _failure(self, what: str) -> SetupError:
        log = self._log_since(self._run_log_start).decode(errors="replace")
        lines = [line for line in log.splitlines() if line.strip() and not _STACK_FRAME.match(line)]
        excerpt = "\n".join(f"  {line}" for line in lines[-_EXCERPT_LINES:]) or "  (it logged nothing)"
        return SetupError(f"{what}. The end of {self.log_file}:\n{excerpt}")

    def _log_size(self) -> int:
        return self.log_file.stat().st_size if self.log_file.exists() else 0

    def _log_since(self, position: int) -> bytes:
        return self.log_file.read_bytes()[position:] if self.log_file.exists() else b""


def _answers(servers: str) -> bool:
    """Whether the broker is in its own metadata, which means that the controller has accepted the broker."""
    client = clients.admin({"bootstrap.servers": servers})
    try:
        return bool(client.list_topics(timeout=5).brokers)
    except KafkaException:
        return False


def _escaped(value: str) -> str:
    r"""Escapes a value as JSON does: Java reads properties as Latin-1, and \uXXXX for other characters."""
    return json.dumps(value)[1:-1]
