import io
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
from rich.console import Console

from balajoin.compute.statistics import NodeStatistics
from balajoin.demo.checking import Found, Pair, Verdict, compare, expected_pairs
from balajoin.demo.comparing import comparison
from balajoin.demo.display import lines
from balajoin.demo.figures import Figures, shares
from balajoin.demo.panel import panel
from balajoin.demo.picture import JoinPicture, Picture
from balajoin.demo.policy_join import PolicyJoin
from balajoin.demo.producing import clock_ms
from balajoin.demo.scenario import POLICIES, Scenario, configuration
from balajoin.demo.summary import Joined, Summary
from balajoin.demo.watching import Watch
from balajoin.embedded.workload import Event, zipf_keys
from balajoin.observe.hot_keys import HotKey
from balajoin.observe.live import reading, recording
from balajoin.observe.report import BatchReport, balance_factor
from balajoin.routing.policies import HotKey as SourceHotKey
from balajoin.routing.statistics import SourceStatistics
from progress_data import FakeQuery, ended, read

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


def test_shares_and_balance_before_and_after_the_first_rows() -> None:
    assert shares([0, 0]) == [0.0, 0.0]
    assert shares([3, 1]) == [0.75, 0.25]
    assert balance_factor([0, 0]) is None
    assert balance_factor([4, 1, 3]) == 0.75
    assert balance_factor([2, 2]) == 0.0


HASH = Figures((40, 80, 40), (0, 0, 0), {"probe": 900, "build": 50, "replica": 0})
BALA = Figures((50, 60, 50), (10, 8, 9), {"probe": 1900, "build": 50, "replica": 70}, 5, 3, 20, 7)
HOT = tuple(HotKey(number, 0.3 / (number + 1), (1, 0, 2), f"product-{number}") for number in range(8))


def picture(*, ended: bool = False, drained: tuple[bool, bool] = (False, False)) -> Picture:
    return Picture(
        ended,
        12.3,
        60,
        170,
        (
            JoinPicture("hash", drained[0], 160, 210.4, 5000, 400.0, 3, 950, HASH),
            JoinPicture("bala-join", drained[1], 150, 190.0, 4000, 300.0, 4, 1950, BALA, HOT),
        ),
    )


def test_the_joins_are_compared_figure_by_figure() -> None:
    assert comparison([HASH, BALA, Figures.none(3)]) == [
        ("busiest node", ["50% of rows, 1.5× its share", "38% of rows, 1.1× its share", "–"]),
        ("B, all rows", ["0.50", "0.17", "–"]),
        ("B, skewed rows", ["–", "0.20", "–"]),
        ("traffic", ["950 B", "2.0 kB", "0 B"]),
        ("  probe", ["900 B", "1.9 kB", "0 B"]),
        ("  build", ["50 B", "50 B", "0 B"]),
        ("  replica", ["0 B", "70 B", "0 B"]),
        ("signals", ["–", "5", "–"]),
        ("pulls", ["–", "3", "–"]),
        ("replica rows", ["–", "20 pulled, 7 forwarded", "–"]),
    ]


def test_lines_tell_what_the_picture_does() -> None:
    assert lines(picture()).splitlines() == [
        " 12 s: joining, 170 rows sent",
        "       hash       160 rows in (210/s), 5,000 pairs out (400/s), batch 0.9 s, nodes 25% 50% 25%",
        "       bala-join  150 rows in (190/s), 4,000 pairs out (300/s), batch 1.9 s, nodes 31% 38% 31%, "
        "B of skewed rows 0.20, 5 signals, 3 pulls",
    ]


def test_it_is_done_when_every_join_is() -> None:
    assert picture().phase == "joining"
    assert picture(ended=True, drained=(True, False)).phase == "draining"
    assert picture(ended=True, drained=(True, True)).phase == "done"


@pytest.mark.parametrize(("width", "height"), [(80, 24), (80, 31), (100, 31), (200, 60)])
def test_the_picture_fits_its_terminal(width: int, height: int) -> None:
    console = Console(file=io.StringIO(), width=width, height=height)
    console.print(panel(picture(), console.size))
    assert isinstance(console.file, io.StringIO)
    drawn = console.file.getvalue().splitlines()
    assert len(drawn) <= height
    assert len({len(row) for row in drawn}) == 1  # nothing sticks out
    assert all("…" not in row for row in drawn)
    assert any("product-5" in row and "nodes 0 1 2" in row for row in drawn)
    node_1 = next(row for row in drawn if "node 1" in row)
    _, _, _, hash_bar, *hash_rows, bala_bar, bala_share, bala_rows, _ = node_1.split()
    assert (hash_rows, bala_share, bala_rows) == (["50%", "80"], "38%", "60")
    assert len(bala_bar) / len(hash_bar) == pytest.approx(60 / 80, abs=0.1)  # on one scale


def test_the_summary_contrasts_the_joins() -> None:
    good, bad = Verdict(9, 9, 0, 0, 0), Verdict(9, 9, 1, 0, 1)
    hash_, bala = picture(ended=True, drained=(True, True)).joins
    joins = [Joined(hash_, 950, good), Joined(bala, 1950, bad)]
    summary = Summary({"views": 150, "prices": 20}, 10.0, joins)
    written = str(summary).splitlines()
    assert written[0] == "  170 rows (150 views, 20 prices) in 10 s, 17 rows/s to each join"
    assert max(map(len, written)) < 100
    cells = {row[:18].strip(): row[18:].split("  ") for row in written[3 : written.index("", 2)]}
    told = {label: [text.strip() for text in texts if text] for label, texts in cells.items()}
    assert told["rows by node"] == ["25.0% 50.0% 25.0%", "31.2% 37.5% 31.2%"]
    assert told["most on a node"] == ["80 (node 1)", "60 (node 1)"]
    assert told["B, skewed rows"] == ["–", "0.20"]
    assert told["batches"] == ["3 of 0.9 s on average", "4 of 1.9 s on average"]
    assert told["pairs found"] == ["9 of 9 expected", "9 of 9 expected"]
    assert told["check"] == ["0 missing, 0 unexpected", "1 missing, 0 unexpected, 1 repeated"]
    assert "  skewed keys     product-0, 30% of views, on nodes 0 1 2" in written
    assert "                  and 5 more" in written


# --- what a query tells of itself -------------------------------------------------------------------------------------


def batch_of(
    batch: int, rows: int, views: int, control: int = 0, pairs: int = 0, **durations_ms: int
) -> dict[str, Any]:
    """`views` are all that were sent by then."""
    return ended(
        batch,
        batch + bool(durations_ms),
        inputs=[read("views", {0: 0}, {0: views - 1, 1: 1}), read("control", {0: 0}, {0: control})],
        rows=(rows - 1, 1, 0, 0),
        build_bytes=None,
        sources=[None],
        nodes=[NodeStatistics(0, pairs=pairs), None],
        durations_ms=durations_ms or {"addBatch": 90, "triggerExecution": 100 * (batch + 1)},
    )


def test_batches_are_added_up_once_each_and_idling_never() -> None:
    query = FakeQuery()
    watch = Watch(query, nodes=4, inputs=("views", "prices"))
    idle = batch_of(2, 1, 30, triggerExecution=5)
    for progress in (
        [],
        [batch_of(0, 10, 10, pairs=4), batch_of(1, 20, 30, pairs=6)],
        [idle],
        [batch_of(2, 5, 35, control=7)],
    ):
        query.recentProgress.extend(progress)
        watch.update()
        watch.update()
    assert (watch.batches, watch.rows_in, watch.pairs_out, watch.figures.node_rows) == (3, 35, 10, (32, 3, 0, 0))
    assert (watch.batch_ms, watch.usual_batch_ms) == (300, 200)
    assert watch.has_consumed({"views": 35})
    assert watch.has_consumed({"views": 35, "control": 7})
    assert not watch.has_consumed({"views": 36})
    assert not watch.has_consumed({"views": 35, "prices": 1})


def source(number: int, signals: int, skewed_rows: list[int], *hot_keys: SourceHotKey) -> SourceStatistics:
    return SourceStatistics(number, skewed_rows, signals=signals, hot_keys=list(hot_keys))


def figures_after(figures: Figures, **told: Any) -> Figures:
    return figures.with_batch(BatchReport.of(ended(0, **told)))


def test_figures_add_up_what_sources_and_nodes_tell() -> None:
    def node(number: int, *counts: int) -> NodeStatistics:
        names = ("pulls", "pulled_rows", "forwarded_rows", "replica_bytes")
        return NodeStatistics(number, **dict(zip(names, counts, strict=True)))

    sent = {"rows": (5, 3), "probe_bytes": 100, "build_bytes": 10}
    first = figures_after(
        Figures.none(2), **sent, sources=[source(0, 2, [3, 1])], nodes=[node(0, 1, 4, 2, 64), node(1, 2, 0, 1, 36)]
    )
    assert first == Figures((5, 3), (3, 1), {"probe": 100, "build": 10, "replica": 100}, 2, 3, 4, 3)
    both = figures_after(first, **sent, sources=[None, source(1, 1, [0, 4])], nodes=[None, None])
    assert (both.node_rows, both.skewed_rows, both.signals, both.pulls) == ((10, 6), (3, 5), 3, 3)
    assert both.traffic == {"probe": 200, "build": 20, "replica": 100}
    nothing_ran = figures_after(both)
    assert (nothing_ran.node_rows, nothing_ran.traffic) == (both.node_rows, both.traffic)


class FakeOffsets:
    def __init__(self) -> None:
        self.answers: list[dict[str, int] | None] = []

    def read(self) -> dict[str, int] | None:
        return self.answers.pop(0)


def test_a_join_is_drained_when_it_has_read_what_it_published_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    query, offsets = FakeQuery(), FakeOffsets()
    monkeypatch.setattr("balajoin.demo.policy_join.start", lambda *_: query)
    monkeypatch.setattr("balajoin.demo.policy_join.EndOffsets", lambda *_: offsets)
    join = PolicyJoin(None, configuration("localhost:9092", Path("/tmp"), "bala-join"))  # type: ignore[arg-type]

    def drained_after(progress: dict[str, Any] | None, *answers: dict[str, int] | None) -> bool:
        query.recentProgress.extend([progress] if progress else [])
        offsets.answers.extend(answers)
        join.update()
        join.look_whether_drained({"views": 30})
        assert offsets.answers == []
        return join.is_drained

    assert not drained_after(None)
    assert not drained_after(batch_of(0, 29, 29))  # rows are missing: nobody has to be asked
    assert not drained_after(batch_of(1, 1, 30), None)  # the broker did not answer
    assert not drained_after(None, {"control": 2})  # published by the batch that read the last rows
    assert not drained_after(None)
    assert not drained_after(batch_of(2, 1, 30, control=2), {"control": 3})
    assert drained_after(batch_of(3, 1, 30, control=3), {"control": 3})


# --- the streams ------------------------------------------------------------------------------------------------------


def test_joins_share_nothing_but_what_they_read(tmp_path: Path) -> None:
    hash_, bala = (configuration("localhost:9092", tmp_path, policy) for policy in POLICIES)
    assert (hash_.join.policy, bala.join.policy) == ("hash", "bala-join")
    shared = set(hash_.topics_by_setting.values()) & set(bala.topics_by_setting.values())
    assert shared == {"views", "prices"}
    assert hash_.name != bala.name
    assert len({hash_.run.checkpoint, bala.run.checkpoint, hash_.run.cache_dir, bala.run.cache_dir}) == 4


def test_the_introduction_tells_the_largest_share() -> None:
    scenario = Scenario(60, 2000)
    keys = zipf_keys(100_000, scenario.products, 1.25, seed=3)
    assert scenario.largest_share == pytest.approx((keys == 0).mean(), abs=0.01)
    assert f"{scenario.largest_share:.0%}" in scenario.introduction
    assert max(map(len, scenario.introduction.splitlines())) <= 80


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


def test_the_demo_joins_checks_and_leaves_nothing(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    record = tmp_path_factory.mktemp("record") / "run.jsonl"
    with demo(tmp_path, "--seconds", "5", "--rate", "500", "--record", str(record)) as process:
        out, err = process.communicate(timeout=_TIMEOUT_S)
    assert process.returncode == 0, out + err
    assert "2,750 rows (2,500 views, 250 prices)" in out
    assert out.count("0 missing, 0 unexpected") == 2
    told = {line[:18].strip(): line[18:].split() for line in out.splitlines()}
    assert told["signals"][0] == told["pulls"][0] == "–"  # hash needs none
    assert int(told["signals"][1]) > 0
    assert int(told["pulls"][1]) > 0
    assert told["skewed keys"][0] == "product-0,"  # found by its hash
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
