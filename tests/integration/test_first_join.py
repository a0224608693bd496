"""Runs the README's first join and the documents' commands as a reader types them, on the tests' broker."""

import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from balajoin.embedded.ports import free_ports
from kafka_data import everything

pytestmark = [pytest.mark.broker, pytest.mark.spark]

REPOSITORY = Path(__file__).parents[2]
RESULTS = 50
_PATIENCE_S = 180


def commands(document: str) -> list[str]:
    """The lines of a document's code blocks that start a program of this project, without their comments."""
    text = (REPOSITORY / document).read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.S | re.M)
    lines = [
        line.partition("#")[0].strip() for language, block in blocks if not language for line in block.splitlines()
    ]
    return [line for line in lines if line.startswith(("balajoin ", "python examples/"))]


def the_one(document: str, beginning: str) -> str:
    (found,) = [line for line in commands(document) if line.startswith(beginning)]
    return found


class Reader:
    """Types commands in a folder that holds the README's file as `join.toml`."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        (toml,) = re.findall(r"```toml\n(.*?)```", (REPOSITORY / "README.md").read_text(encoding="utf-8"), re.S)
        (port,) = free_ports(1)
        file = toml.replace("localhost:9092", bootstrap).replace(":8787", f":{port}")
        (folder / "join.toml").write_text(file)
        (folder / "examples").symlink_to(REPOSITORY / "examples")
        self._folder, self._bootstrap = folder, bootstrap

    def _argv(self, command: str) -> list[str]:
        program, *arguments = shlex.split(command.replace("localhost:9092", self._bootstrap))
        return [sys.executable, *(["-m", "balajoin"] if program == "balajoin" else []), *arguments]

    def types(self, command: str) -> str:
        done = subprocess.run(
            self._argv(command), cwd=self._folder, capture_output=True, text=True, timeout=_PATIENCE_S
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    @contextmanager
    def leaves_running(self, command: str, ends_with: int) -> Iterator[None]:
        """Runs the command inside this context, and ends it with Ctrl-C."""
        with (self._folder / f"{command.split()[1].replace('/', '-')}.log").open("w+") as log:
            process = subprocess.Popen(self._argv(command), cwd=self._folder, stdout=log, stderr=log)
            try:
                yield
                assert process.poll() is None, f"{command} has ended: {Path(log.name).read_text()}"
                process.send_signal(signal.SIGINT)
                assert process.wait(_PATIENCE_S) == ends_with, Path(log.name).read_text()
            finally:
                process.kill()
                process.wait()


def await_results(bootstrap: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while len(everything(bootstrap, "clicks-with-shows")) < RESULTS:
        assert time.monotonic() < deadline, "no results"
        time.sleep(1)


def test_the_first_join_works_as_the_readme_says(bootstrap: str, tmp_path: Path) -> None:
    reader = Reader(tmp_path, bootstrap)
    assert "created clicks-with-shows" in reader.types(the_one("README.md", "balajoin topics"))
    assert "all good" in reader.types(the_one("README.md", "balajoin check"))
    run, top = (the_one("README.md", f"balajoin {name} ") for name in ("run", "top"))
    produce = the_one("README.md", "python examples/produce.py")
    with reader.leaves_running(run, ends_with=0), reader.leaves_running(produce, ends_with=0):
        await_results(bootstrap)
        assert "rows by node" in reader.types(top)  # without a terminal it prints once
    assert "replicas batch " in reader.types(
        the_one("docs/operations.md", "balajoin control tail").replace(" --follow", "")
    )
    assert "probe" in reader.types(the_one("docs/operations.md", "balajoin state -c"))
    rescale = the_one("docs/operations.md", "balajoin rescale")
    told = reader.types(rescale)
    assert "8" in told
    assert (tmp_path / "checkpoints" / "clicks-8").is_dir()
