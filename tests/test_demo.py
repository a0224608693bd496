import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row as SparkRow

from balajoin.demo.checking import Found, Pair, Verdict, compare, expected_pairs
from balajoin.demo.display import Picture, bar, hottest, line, shares
from balajoin.demo.producing import clock_ms
from balajoin.demo.watching import Watch
from balajoin.observed import SOURCES
from balajoin.workload import Event

_COMMAND = str(Path(sys.executable).with_name("balajoin"))
_TIMEOUT_S = 400
_GONE_WITHIN_S = 10


def pair(number: int) -> Pair:
    return Pair("k", f"p{number}", f"b{number}")


def found(number: int, id_: str = "") -> Found:
    return Found(id_ or f"id-{number}", pair(number))


# --- the check --------------------------------------------------------------------------------------------------------


def test_expected_pairs_are_those_of_equal_keys_within_the_interval_edges_included() -> None:
    probe = [Event(b"a", 100, b"p0"), Event(b"b", 100, b"p1"), Event(b"c", 100, b"p2")]
    times = [89, 90, 100, 100, 102, 103]
    build = [Event(key, time_ms, b"%s%d" % (key, n)) for key in (b"a", b"b") for n, time_ms in enumerate(times)]
    assert expected_pairs(probe, reversed(build), before_ms=10, after_ms=2) == {
        Pair(key, value, f"{key}{n}") for key, value in (("a", "p0"), ("b", "p1")) for n in (1, 2, 3, 4)
    }


def test_the_same_pairs_are_good() -> None:
    verdict = compare({pair(1), pair(2)}, [found(2), found(1)])
    assert verdict == Verdict(expected=2, found=2, missing=0, unexpected=0, repeats=0)
    assert verdict.good


def test_a_missing_pair_is_found() -> None:
    verdict = compare({pair(1), pair(2)}, [found(2)])
    assert (verdict.missing, verdict.unexpected, verdict.repeats, verdict.good) == (1, 0, 0, False)
    assert str(pair(1)) in verdict.example


def test_an_unexpected_pair_is_found() -> None:
    verdict = compare({pair(1)}, [found(1), found(7)])
    assert (verdict.missing, verdict.unexpected, verdict.repeats, verdict.good) == (0, 1, 0, False)
    assert str(pair(7)) in verdict.example


def test_repeats_under_the_same_id_are_counted_and_allowed() -> None:
    verdict = compare({pair(1), pair(2)}, [found(1), found(2), found(1), found(1)])
    assert verdict == Verdict(expected=2, found=4, missing=0, unexpected=0, repeats=2)
    assert verdict.good


@pytest.mark.parametrize("records", [[found(1), found(2), found(1, "other")], [found(1, "same"), found(2, "same")]])
def test_a_pair_and_its_id_belong_to_each_other(records: list[Found]) -> None:
    verdict = compare({pair(1), pair(2)}, records)
    assert (verdict.missing, verdict.unexpected, verdict.good) == (0, 1, False)
    assert "id" in verdict.example


# --- what is shown ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "drawn"),
    [(0.0, ""), (1.0, "████"), (0.5, "██"), (1 / 32, "▏"), (0.6, "██▍"), (0.999, "████"), (-1.0, ""), (2.0, "████")],
)
def test_bars_are_drawn_in_eighths(part: float, drawn: str) -> None:
    assert bar(part, 4) == drawn


def test_shares_before_and_after_the_first_rows() -> None:
    assert shares([0, 0]) == [0.0, 0.0]
    assert shares([3, 1]) == [0.75, 0.25]
    assert hottest([0, 0]) == "no rows yet"
    assert hottest([1, 3]) == "hottest is node 1 with 75% of all rows, 1.5× its fair share"


def test_a_line_tells_what_the_picture_does() -> None:
    picture = Picture(False, 12.3, 60, 3000, 2500, 210.4, 5000, 400.0, 3, 950, (3, 1))
    assert line(picture) == (
        " 12 s: joining, 2,500 rows in (210/s), 5,000 pairs out (400/s), batch 0.9 s, nodes 75% 25%"
    )


def ended(batch: int, rows: int, pairs: int, views: int, **durations_ms: int) -> dict[str, Any]:
    return {
        "batchId": batch,
        "timestamp": f"{batch} {durations_ms}",
        "numInputRows": rows,
        "durationMs": durations_ms or {"addBatch": 90, "triggerExecution": 100},
        "sink": {"numOutputRows": pairs},
        "observedMetrics": {SOURCES: SparkRow(rows_0=rows - 1, rows_1=1)},
        "sources": [{"endOffset": f'{{"views": {{"0": {views - 1}, "1": 1}}}}'}, {"endOffset": "null"}],
    }


class FakeQuery:
    def __init__(self) -> None:
        self.recentProgress: list[dict[str, Any]] = []

    @property
    def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802
        return self.recentProgress[-1] if self.recentProgress else None


def test_batches_are_added_up_once_each_and_idling_never() -> None:
    query = FakeQuery()
    watch = Watch(query, nodes=2)
    idle = ended(2, 0, 0, 30, triggerExecution=5)
    for progress in ([], [ended(0, 10, 4, 10), ended(1, 20, 6, 30)], [idle], [ended(2, 5, 0, 35)]):
        query.recentProgress.extend(progress)
        watch.update()
        watch.update()
    assert (watch.batches, watch.rows_in, watch.pairs_out, watch.node_rows) == (3, 35, 10, [32, 3])
    assert watch.has_consumed({"views": 35})
    assert not watch.has_consumed({"views": 36})
    assert not watch.has_consumed({"views": 35, "prices": 1})


def test_the_producers_clock_keeps_its_rate_and_stops() -> None:
    stopping = threading.Event()
    clock = clock_ms(100, stopping)
    start = time.monotonic()
    times = list(islice(clock, 21))
    assert time.monotonic() - start >= 0.2
    assert times == sorted(times)
    stopping.set()
    assert len(list(islice(clock, 1000))) < 1000


# --- the command ------------------------------------------------------------------------------------------------------


@contextmanager
def demo(folder: Path, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """As a user starts it, but for a temporary folder that nobody else uses."""
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
    """All that inherited the demo's environment, however far down and whoever their parent is by now."""
    mark = f"TMPDIR={folder}\0".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text().replace("\0", " ")[:200])
        except OSError:  # it has just ended, or is not ours
            continue
    return found


def test_the_demo_joins_checks_and_leaves_nothing(tmp_path: Path) -> None:
    with demo(tmp_path, "--seconds", "5", "--rate", "500") as process:
        out, err = process.communicate(timeout=_TIMEOUT_S)
    assert process.returncode == 0, out + err
    assert "2,750 (2,500 views, 250 prices)" in out
    assert "0 missing, 0 unexpected" in out
    assert err == ""
    assert_nothing_is_left(tmp_path)


def test_ctrl_c_ends_the_demo_and_leaves_nothing(tmp_path: Path) -> None:
    with demo(tmp_path, "--seconds", "600", "--rate", "500") as process:
        assert process.stdout is not None
        assert any("joining" in told for told in process.stdout)
        assert len(processes_of(tmp_path)) > 2
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=_TIMEOUT_S)
    assert process.returncode == 130
    assert out.splitlines()[-1] == "stopping"
    assert err == ""
    assert_nothing_is_left(tmp_path)
