"""Runs `balajoin run` as a supervisor does: in its own process, and restarts it when it has ended."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from balajoin.spark.child import Child

_ERROR = re.compile(r"^(?:balajoin: |\S+ has \d+ problems?:\n)[\s\S]*", re.M)
_PATIENCE_S = 180
_EXCERPT_CHARACTERS = 3000


class SoakError(Exception):
    """The service broke a promise."""


@dataclass(frozen=True)
class Ending:
    """How a process ended: its exit code and its last lines."""

    code: int
    error: str

    @property
    def was_killed(self) -> bool:
        return self.code == -signal.SIGKILL


class Service:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._log = file.with_suffix(".log")
        self._process: Child | None = None
        self._log_start = 0
        self.starts = 0

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def start(self) -> None:
        assert not self.is_running
        with self._log.open("ab") as log:
            self._log_start = log.tell()
            command = [sys.executable, "-m", "balajoin", "run", "-c", str(self._file)]
            self._process = Child(command, log)
        self.starts += 1

    def ending(self) -> Ending | None:
        """How the last process ended. None if it still runs, or if this was asked before."""
        if self._process is None or self._process.returncode is None:
            return None
        code, self._process = self._process.returncode, None
        said = _ERROR.findall(self.log)
        return Ending(code, said[-1].strip() if said else "")

    def await_ending(self) -> Ending:
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            if ending := self.ending():
                return ending
            time.sleep(0.2)
        raise SoakError(f"the service should have stopped, but still runs:\n{self.excerpt}")

    def stop(self) -> None:
        """Stops the service with SIGTERM, as an operator does."""
        assert self._process is not None
        self._process.terminate()
        ending = self.await_ending()
        if ending.code != 0:
            raise SoakError(f"SIGTERM ended the service with {ending}:\n{self.excerpt}")

    def kill(self) -> None:
        """Kills the driver. Its JVM ends by itself when it notices that."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def kill_jvm(self) -> None:
        os.kill(self._await_process(self._jvms), signal.SIGKILL)

    def kill_worker(self) -> None:
        os.kill(self._await_process(self._workers), signal.SIGKILL)

    def pause_jvm(self, paused: bool) -> None:
        os.kill(self._await_process(self._jvms), signal.SIGSTOP if paused else signal.SIGCONT)

    @property
    def log(self) -> str:
        """The log since the last start."""
        with self._log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    @property
    def excerpt(self) -> str:
        return self.log[-_EXCERPT_CHARACTERS:]

    def _await_process(self, find: Callable[[], list[int]]) -> int:
        deadline = time.monotonic() + _PATIENCE_S
        while not (found := find()):
            if time.monotonic() > deadline or not self.is_running:
                raise SoakError(f"the service has no such process:\n{self.excerpt}")
            time.sleep(0.1)
        return found[0]

    def _jvms(self) -> list[int]:
        assert self._process is not None
        return _children(self._process.pid)

    def _workers(self) -> list[int]:
        daemons = [pid for jvm in self._jvms() for pid in _children(jvm)]
        return [pid for daemon in daemons for pid in _children(daemon)]


def _children(pid: int) -> list[int]:
    listing = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True)
    return [int(child) for child in listing.stdout.split()]
