import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from balajoin.spark.child import Child


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def sleeper(log: Path) -> Iterator[Child]:
    """A child of a thread that has ended. Linux sends the death signal when the forking thread ends."""
    started: list[Child] = []

    def start() -> None:
        with log.open("wb") as output:
            started.append(Child(["/bin/sleep", "60"], output))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    yield started[0]
    started[0].kill()
    assert started[0].wait(10)


def test_outlives_the_thread_that_started_it(sleeper: Child) -> None:
    assert not sleeper.wait(0.3)
    assert sleeper.returncode is None


def test_is_out_of_reach_of_the_terminal(sleeper: Child) -> None:
    assert os.getsid(sleeper.pid) == sleeper.pid != os.getsid(0)


def test_terminate_ends_it(sleeper: Child) -> None:
    sleeper.terminate()
    assert sleeper.wait(10)
    assert sleeper.returncode == -signal.SIGTERM


def test_output_and_exit_code(log: Path) -> None:
    with log.open("wb") as output:
        child = Child(["/bin/sh", "-c", "echo out; echo err >&2; exit 3"], output)
    assert child.wait(10)
    assert child.returncode == 3
    assert log.read_text() == "out\nerr\n"


def test_missing_command_is_an_exit_code(log: Path) -> None:
    with log.open("wb") as output:
        child = Child(["/no/such/command"], output)
    assert child.wait(10)
    assert child.returncode != 0
    assert "/no/such/command" in log.read_text() or "No such file" in log.read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals a child when its parent dies")
def test_is_not_started_for_a_parent_that_is_gone(log: Path) -> None:
    from balajoin.spark import child

    starter = Path(child.__file__).with_name("_die_with_parent.py")
    with log.open("wb") as output:
        orphan = Child([sys.executable, str(starter), "1", "/bin/echo", "started"], output)
    assert orphan.wait(10)
    assert orphan.returncode == 1
    assert "not started" in log.read_text()
