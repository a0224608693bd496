"""The demo as a user starts it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from balajoin.demo.scenario import POLICIES
from balajoin.observe.live import reading, recording

pytestmark = [pytest.mark.broker, pytest.mark.spark]

_COMMAND = str(Path(sys.executable).with_name("balajoin"))
_TIMEOUT_S = 400
_GONE_WITHIN_S = 10


@contextmanager
def demo(folder: Path, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """Starts the demo as a user does, but with a temporary folder of its own."""
    process = subprocess.Popen(
        [_COMMAND, "demo", *arguments],
        env={**os.environ, "TMPDIR": str(folder)},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def assert_nothing_is_left(folder: Path) -> None:
    assert list(folder.iterdir()) == []
    deadline = time.monotonic() + _GONE_WITHIN_S
    while left := processes_of(folder):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def processes_of(folder: Path) -> list[str]:
    """All processes that inherited the demo's environment, whatever their parent is now."""
    mark = f"TMPDIR={folder}\0".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text().replace("\0", " ")[:200])
        except OSError:  # the process has just ended, or belongs to another user
            continue
    return found


def test_the_demo_joins_checks_and_leaves_nothing(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    record = tmp_path_factory.mktemp("record") / "run.jsonl"
    with demo(tmp_path, "--seconds", "5", "--rate", "500", "--record", str(record)) as process:
        out, err = process.communicate(timeout=_TIMEOUT_S)
    assert process.returncode == 0, out + err
    assert "2,750 rows (2,500 views, 250 prices)" in out
    assert out.count("0 missing, 0 unexpected") == 2
    told = {line[:18].strip(): line[18:].split() for line in out.splitlines()}
    assert told["signals"][0] == told["pulls"][0] == "–"  # the policy hash has none
    assert int(told["signals"][1]) > 0
    assert int(told["pulls"][1]) > 0
    assert told["skewed keys"][0] == "product-0,"  # its name was found by the hash
    assert [float(told["B, all rows"][at]) for at in (0, 1)] == [pytest.approx(0.5, abs=0.2), pytest.approx(0, abs=0.3)]
    assert err == ""
    assert_nothing_is_left(tmp_path)
    pairs = int(told["pairs found"][0].replace(",", ""))
    moments = list(recording.read(record))
    for policy in POLICIES:
        mine = [each for each in moments if each.policy == policy]
        assert (sum(each.rows_in for each in mine), sum(each.rows_out for each in mine)) == (2_750, pairs)
        assert sum(sum(each.node_rows) for each in mine) == 2_750
        assert [each.batch for each in mine] == sorted({each.batch for each in mine})
        assert [key.key for key in mine[-1].hot_keys[:1]] == ([] if policy == "hash" else ["product-0"])


def test_ctrl_c_ends_the_demo_and_leaves_nothing(tmp_path: Path) -> None:
    with demo(tmp_path, "--seconds", "600", "--rate", "500") as process:
        assert process.stdout is not None
        address = next(told.split()[-1] for told in process.stdout if "in a browser" in told)
        page = reading.moments(address)
        assert any("joining" in told for told in process.stdout)
        assert next(moments for moments in page if moments)[0].join.startswith("balajoin-demo-")
        assert len(processes_of(tmp_path)) > 2
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=_TIMEOUT_S)
    assert process.returncode == 130
    assert out.splitlines()[-1] == "stopping"
    assert err == ""
    assert_nothing_is_left(tmp_path)
