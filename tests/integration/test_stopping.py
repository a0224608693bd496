"""Signals to a real driver with a slow query: which batch is finished first, and that no process stays behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from balajoin.service.stopping import StopRequests, finish_batch_and_stop

pytestmark = pytest.mark.spark

# Each batch spends seconds in a Python worker, which creates the file `started` when a batch runs.
DRIVER = """
import logging, os, pathlib, sys, time
from balajoin.spark.jars import default_cache
from balajoin.observe.log import log_batch
from balajoin.service.run import until_stopped
from balajoin.spark.session import create_session
from balajoin.service.stopping import StopRequests

folder = pathlib.Path(sys.argv[1])
logging.basicConfig(level=logging.INFO)

def slow(frames):
    for frame in frames:
        (folder / "started").touch()
        time.sleep(4)
        yield frame

with StopRequests() as requests:
    spark = create_session(
        master="local[1,4]", app_name="slow", spark_conf={}, cache=default_cache(os.environ), nodes=1
    )
    requests.wait_for_batches()
    rows = spark.readStream.format("rate").load().mapInPandas(slow, "timestamp timestamp, value long")
    query = rows.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint")).start()
    sys.exit(until_stopped(query, requests, [log_batch]))
"""

Driver = subprocess.Popen[str]


def children(pid: int) -> set[int]:
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(pid): int(parent) for pid, parent in map(str.split, listed.splitlines())}
    found = {child for child, parent in parents.items() if parent == pid}
    return found.union(*map(children, found)) if found else found


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
    return condition()


def alive(pids: set[int]) -> set[int]:
    return {pid for pid in pids if Path(f"/proc/{pid}").exists()}


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    """A driver with a running batch. It leads its own process group, as if a shell had started it."""
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    try:
        assert wait_until(lambda: (tmp_path / "started").exists() or process.poll() is not None, 120)
        assert process.poll() is None, process.stderr and process.stderr.read()
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def batches(folder: Path, log: str) -> set[str]:
    return {file.name for file in (folder / "checkpoint" / log).iterdir() if not file.name.startswith(".")}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_batch_in_flight_is_finished_and_no_other_begun(
    driver: Driver, tmp_path: Path, number: signal.Signals
) -> None:
    family = children(driver.pid)
    os.killpg(driver.pid, number)
    _, log = driver.communicate(timeout=60)
    assert driver.returncode == 0, log
    assert batches(tmp_path, "offsets") == batches(tmp_path, "commits")
    assert "batch=0 rows_in=" in log
    assert "Traceback" not in log
    assert wait_until(lambda: not alive(family), 20), alive(family)


def test_no_batch_is_cut_short_whenever_the_request_comes(spark: SparkSession, tmp_path: Path) -> None:
    """Spark interrupts a batch that is told while it is planned that it is the last."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    for attempt in range(12):
        folder = tmp_path / str(attempt)
        started = rows.writeStream.format("noop").trigger(processingTime="0 seconds")
        query = started.option("checkpointLocation", str(folder / "checkpoint")).start()
        assert wait_until(lambda folder=folder: any((folder / "checkpoint" / "commits").glob("[0-9]*")), 60)
        time.sleep(0.013 * attempt)
        assert finish_batch_and_stop(query, StopRequests())
        assert batches(folder, "offsets") == batches(folder, "commits")


def test_a_second_signal_stops_at_once(driver: Driver, tmp_path: Path) -> None:
    begin = time.monotonic()
    os.kill(driver.pid, signal.SIGINT)
    time.sleep(0.5)
    os.kill(driver.pid, signal.SIGINT)
    _, log = driver.communicate(timeout=60)
    assert driver.returncode == 130, log
    assert "stopped at once" in log
    assert time.monotonic() - begin < 20


def test_nothing_outlives_a_killed_driver(driver: Driver) -> None:
    family = children(driver.pid)
    assert len(family) >= 3  # the JVM, the workers' daemon and a worker
    driver.kill()
    assert wait_until(lambda: not alive(family), 30), alive(family)
