"""Child processes that end with this process, and that Ctrl-C in its terminal does not reach."""

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import IO

_DIE_WITH_PARENT = Path(__file__).with_name("_die_with_parent.py")


class Child:
    """A running command, in its own session. On Linux it dies with this process; elsewhere only `kill` ends it."""

    def __init__(self, command: Sequence[str], output: IO[bytes]) -> None:
        started: SimpleQueue[subprocess.Popen[bytes] | OSError] = SimpleQueue()
        # The kernel sends the death signal when the *thread* that forked ends, so that thread must live as long.
        self._keeper = threading.Thread(
            target=_keep, args=(command, output, started), name=f"keeper of {Path(command[0]).name}", daemon=True
        )
        self._keeper.start()
        process = started.get()
        if isinstance(process, OSError):
            raise process
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """None while the command runs."""
        return self._process.returncode

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    def wait(self, timeout: float | None = None) -> bool:
        """Whether the command ended within `timeout` seconds."""
        self._keeper.join(timeout)
        return not self._keeper.is_alive()


def _keep(command: Sequence[str], output: IO[bytes], started: "SimpleQueue[subprocess.Popen[bytes] | OSError]") -> None:
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_DIE_WITH_PARENT), str(os.getpid()), *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        started.put(error)
        return
    started.put(process)
    process.wait()
