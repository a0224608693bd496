"""The hosts of a run: a broker, a driver and some workers, each with its address, folder, processes and counters."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from balajoin.spark.child import Child
from geo.network import Bytes, Network
from geo.quota import CpuTime, Quota

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Size:
    """What a worker has."""

    cores: float
    mbit: float


@dataclass(frozen=True)
class Use:
    """What a host has used so far: its link, its CPU, and the CPU by kind of process."""

    link: Bytes
    cpu: CpuTime
    jvm_s: float
    python_s: float

    def __sub__(self, other: "Use") -> "Use":
        return Use(
            self.link - other.link, self.cpu - other.cpu, self.jvm_s - other.jvm_s, self.python_s - other.python_s
        )


class Host:
    def __init__(self, name: str, network: Network, folder: Path, size: Size | None = None) -> None:
        self.name = name
        self.folder = folder / name
        """The host's own disk; its temporary files are there."""
        (self.folder / "tmp").mkdir(parents=True)
        self._network = network
        self.address = network.add(name, size.mbit if size else None)
        self.quota = Quota(name, size.cores if size else None)

    def start(self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> Child:
        given = {"TMPDIR": str(self.folder / "tmp"), **(environment or {})}
        words = ["/usr/bin/env", *(f"{name}={value}" for name, value in given.items()), *command]
        enter = f'{self.quota.entering}exec "$@"'
        with log.open("ab") as output:
            return Child(["/bin/bash", "-c", enter, "enter", *self._network.inside(self.name), *words], output)

    def run(self, command: Sequence[str], timeout_s: float = 600) -> str:
        """Runs a command to its end, and returns what it prints."""
        done = subprocess.run(
            [*self._network.inside(self.name), *command], capture_output=True, text=True, timeout=timeout_s
        )
        if done.returncode:
            raise RuntimeError(f"{command[:4]} failed on {self.name}: {done.stderr[-2000:]}")
        return done.stdout

    def use(self) -> Use:
        kinds = {"java": 0.0, "python": 0.0}
        for pid in self.quota.processes():
            with suppress(OSError):  # the process has ended
                head, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
                kind = "java" if head.partition("(")[2].startswith("java") else "python"
                kinds[kind] += sum(map(int, rest.split()[11:15])) / _TICKS
        return Use(self._network.counted(self.name), self.quota.time(), kinds["java"], kinds["python"])

    def kill(self) -> None:
        """Ends all processes of the host as a power cut would."""
        for pid in self._network.processes(self.name):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def cut(self) -> None:
        self._network.cut(self.name)

    def mend(self) -> None:
        self._network.mend(self.name)

    def close(self) -> None:
        deadline = time.monotonic() + 10
        while self._network.processes(self.name) and time.monotonic() < deadline:
            self.kill()
            time.sleep(0.1)
        self.quota.remove()


@dataclass(frozen=True)
class Hosts:
    broker: Host
    driver: Host
    workers: tuple[Host, ...]

    @property
    def all(self) -> tuple[Host, ...]:
        return (self.broker, self.driver, *self.workers)


@contextmanager
def hosts(folder: Path, sizes: Sequence[Size]) -> Iterator[Hosts]:
    with ExitStack() as stack:
        network = stack.enter_context(Network())

        def host(name: str, size: Size | None = None) -> Host:
            made = Host(name, network, folder, size)
            stack.callback(made.close)
            return made

        workers = tuple(host(f"worker-{number}", size) for number, size in enumerate(sizes, 1))
        yield Hosts(host("broker"), host("driver"), workers)
