"""Leaving nothing behind: neither a process nor a file."""

import logging
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyspark import SparkContext

_REMOVE_WITHIN_S = 10.0


@contextmanager
def temporary_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="balajoin-demo-"))
    try:
        yield folder
    finally:
        _remove(folder)


def kill_spark() -> None:
    """Ends the JVM, and with it all Python workers. Nothing that they would still have to write is of use."""
    _silence_spark()
    context, gateway = SparkContext._active_spark_context, SparkContext._gateway
    if context is not None:
        context._accumulatorServer.shutdown()  # it would print a trace
    if gateway is not None:
        gateway.proc.kill()
        gateway.proc.wait()


def kill_children() -> None:
    """Ends what this process has started, also where nobody holds a handle yet. Without /proc it does nothing."""
    _silence_spark()
    for child in _children():
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def _children() -> Iterator[int]:
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            _state, parent, *_ = (process / "stat").read_text().rpartition(")")[2].split()
            if int(parent) == os.getpid():
                yield int(process.name)


def _silence_spark() -> None:
    """Workers complain when their JVM is gone."""
    logging.getLogger("balajoin.spark").setLevel(logging.CRITICAL)


def _remove(folder: Path) -> None:
    """Workers end a moment after their JVM, and may write until then."""
    deadline = time.monotonic() + _REMOVE_WITHIN_S
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)
        if time.monotonic() > deadline:
            return
        time.sleep(0.02)
