import io
import re
import threading
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from balajoin.compute.statistics import NodeStatistics
from balajoin.demo.check import OutputRecord, Pair, Verdict, compare, expected_pairs
from balajoin.demo.policy_join import PolicyJoin
from balajoin.demo.production import clock_ms
from balajoin.demo.scenario import NAME, POLICIES, Scenario, configuration
from balajoin.demo.screen import Screen
from balajoin.demo.summary import Joined, Totals, summary
from balajoin.embedded.workload import Event, zipf_keys
from balajoin.observe.hot_keys import JoinHotKey
from balajoin.observe.live.moment import Moment, SkewedKey
from balajoin.observe.live.picture import Join, shares
from balajoin.observe.report import BatchReport, balance_factor
from balajoin.routing.policies import HotKey
from balajoin.routing.statistics import SourceStatistics
from live_data import moment
from progress_data import FakeQuery, ended, read


def pair(number: int) -> Pair:
    return Pair("k", f"p{number}", f"b{number}")


def found(number: int, id_: str = "") -> OutputRecord:
    return OutputRecord(id_ or f"id-{number}", pair(number))


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
def test_a_pair_and_its_id_belong_to_each_other(records: list[OutputRecord]) -> None:
    verdict = compare({pair(1), pair(2)}, records)
    assert (verdict.missing, verdict.unexpected, verdict.good) == (0, 1, False)
    assert "id" in verdict.example


# --- the display ------------------------------------------------------------------------------------------------------


def test_shares_and_balance_before_and_after_the_first_rows() -> None:
    assert shares([0, 0]) == [0.0, 0.0]
    assert shares([3, 1]) == [0.75, 0.25]
    assert balance_factor([0, 0]) is None
    assert balance_factor([4, 1, 3]) == 0.75
    assert balance_factor([2, 2]) == 0.0


HASH = Totals((40, 80, 40), (0, 0, 0), {"probe": 900, "build": 50, "replica": 0}, batches=3, batch_ms=950)
BALA = Totals((50, 60, 50), (10, 8, 9), {"probe": 1900, "build": 50, "replica": 70}, 5, 3, 20, 7, 4, 1950)
HOT = tuple(JoinHotKey(number, 0.3 / (number + 1), (1, 0, 2), f"product-{number}") for number in range(8))


def views() -> list[Join]:
    keys = tuple(SkewedKey(key=key.name, share=key.share, nodes=key.nodes) for key in HOT)
    told: dict[str, dict[str, Any]] = {
        "hash": {"node_rows": HASH.node_rows, "b_skewed": None, "hot_keys": ()},
        "bala-join": {"node_rows": BALA.node_rows, "b_skewed": 0.2, "hot_keys": keys},
    }
    return [
        Join([moment(join=f"{NAME}-{policy}", policy=policy, skewed_rows=(0, 0, 0), **more)], 0.0)
        for policy, more in told.items()
    ]


def shown(console: Console) -> list[str]:
    screen = Screen(console)
    with screen.drawing():
        screen.show("joining, 12 of 60 s, 170 rows sent", views())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_without_a_terminal_the_demo_prints_lines() -> None:
    assert shown(Console(file=io.StringIO(), width=80)) == [
        "joining, 12 of 60 s, 170 rows sent",
        "  hash: 250/s in, 625/s out, 30 waiting; batch 0, took 0.4 s; rows by node 25% 50% 25%; B of all rows 0.33",
        "  bala-join: 250/s in, 625/s out, 30 waiting; batch 0, took 0.4 s; rows by node 31% 38% 31%; "
        "B of all rows 0.33; B of what is balanced 0.20; signals, pulls 1, 1",
    ]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (80, 31), (100, 31), (200, 60)])
def test_the_picture_fits_its_terminal(width: int, height: int) -> None:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, no_color=True)
    drawn = [re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]|\r", "", row).rstrip() for row in shown(console)]
    assert drawn[0] == "joining, 12 of 60 s, 170 rows sent"
    assert len(drawn) <= height
    assert max(map(len, drawn)) <= width
    assert all("…" not in row for row in drawn)
    assert any(row.split() == ["product-4", "6%", "□■□"] for row in drawn)
    (node_1,) = (row for row in drawn if row.startswith("node 1"))
    _, _, hash_bar, *hash_rows, bala_bar, bala_rows, bala_share = node_1.split()
    assert (hash_rows, bala_share, bala_rows) == (["80", "50%"], "38%", "60")
    assert len(bala_bar) / len(hash_bar) == pytest.approx(60 / 80, abs=0.1)  # on one scale


def figures_in(written: list[str]) -> dict[str, list[str]]:
    cells = {row[:18].strip(): row[18:].split("  ") for row in written[3 : written.index("", 2)]}
    return {label: [text.strip() for text in texts if text] for label, texts in cells.items()}


def test_the_summary_contrasts_the_joins() -> None:
    good, bad = Verdict(9, 9, 0, 0, 0), Verdict(9, 9, 1, 0, 1)
    joins = [Joined("hash", HASH, (), good), Joined("bala-join", BALA, HOT, bad)]
    written = summary({"views": 150, "prices": 20}, 10.0, joins).splitlines()
    assert written[0] == "  170 rows (150 views, 20 prices) in 10 s, 17 rows/s to each join"
    assert max(map(len, written)) < 100
    assert figures_in(written) == {
        "rows by node": ["25.0% 50.0% 25.0%", "31.2% 37.5% 31.2%"],
        "most on a node": ["80 (node 1)", "60 (node 1)"],
        "busiest node": ["50% of rows, 1.5× its share", "38% of rows, 1.1× its share"],
        "B, all rows": ["0.50", "0.17"],
        "B, skewed rows": ["–", "0.20"],
        "traffic": ["950 B", "2.0 kB"],
        "probe": ["900 B", "1.9 kB"],
        "build": ["50 B", "50 B"],
        "replica": ["0 B", "70 B"],
        "signals": ["–", "5"],
        "pulls": ["–", "3"],
        "replica rows": ["–", "20 pulled, 7 forwarded"],
        "batches": ["3 of 0.9 s on average", "4 of 1.9 s on average"],
        "pairs found": ["9 of 9 expected", "9 of 9 expected"],
        "check": ["0 missing, 0 unexpected", "1 missing, 0 unexpected, 1 repeated"],
    }
    assert "  skewed keys     product-0, 30% of views, on nodes 0 1 2" in written
    assert "                  and 5 more" in written


def test_the_summary_of_no_batch_has_no_figures() -> None:
    nothing = Joined.of("hash", 3, [], Verdict(0, 0, 0, 0, 0))
    told = figures_in(summary({"views": 0}, 1.0, [nothing]).splitlines())
    assert (told["busiest node"], told["B, all rows"], told["traffic"]) == (["–"], ["–"], ["0 B"])


# --- reports of a query -----------------------------------------------------------------------------------------------


def batch_of(
    batch: int, rows: int, views: int, control: int = 0, pairs: int = 0, **durations_ms: int
) -> dict[str, Any]:
    """`views` is the number of all views sent by then."""
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


def source(number: int, signals: int, skewed_rows: list[int], *hot_keys: HotKey) -> SourceStatistics:
    return SourceStatistics(number, skewed_rows, signals=signals, hot_keys=list(hot_keys))


def test_totals_add_up_what_sources_and_nodes_tell() -> None:
    def node(number: int, *counts: int) -> NodeStatistics:
        names = ("pulls", "pulled_rows", "forwarded_rows", "replica_bytes")
        return NodeStatistics(number, **dict(zip(names, counts, strict=True)))

    sent = {"rows": (5, 3), "probe_bytes": 100, "build_bytes": 10}
    first = ended(0, **sent, sources=[source(0, 2, [3, 1])], nodes=[node(0, 1, 4, 2, 64), node(1, 2, 0, 1, 36)])
    second = ended(1, **sent, sources=[None, source(1, 1, [0, 4])], nodes=[None, None])
    nothing_ran = ended(2, durations_ms={"addBatch": 90, "triggerExecution": 400})
    one, two, three = (BatchReport.of(progress) for progress in (first, second, nothing_ran))
    assert Totals.of([one], 2) == Totals(
        (5, 3), (3, 1), {"probe": 100, "build": 10, "replica": 100}, 2, 3, 4, 3, batches=1, batch_ms=100
    )
    assert Totals.of([one, two, three], 2) == Totals(
        (10, 6), (3, 5), {"probe": 200, "build": 20, "replica": 100}, 3, 3, 4, 3, batches=3, batch_ms=200
    )


class FakeOffsets:
    def __init__(self) -> None:
        self.answers: list[dict[str, int] | None] = []

    def read(self) -> dict[str, int] | None:
        return self.answers.pop(0)


@pytest.fixture
def query_and_offsets(monkeypatch: pytest.MonkeyPatch) -> tuple[FakeQuery, FakeOffsets]:
    query, offsets = FakeQuery(), FakeOffsets()
    monkeypatch.setattr("balajoin.demo.policy_join.start", lambda *_: query)
    monkeypatch.setattr("balajoin.demo.policy_join.EndOffsets", lambda *_: offsets)
    return query, offsets


def policy_join(listener: Callable[[Moment], None]) -> PolicyJoin:
    return PolicyJoin(None, configuration("localhost:9092", Path("/tmp"), "bala-join"), [listener])  # type: ignore[arg-type]


def test_batches_are_added_up_once_each_and_idling_never(query_and_offsets: tuple[FakeQuery, FakeOffsets]) -> None:
    query, _ = query_and_offsets
    heard: list[Moment] = []
    join = policy_join(heard.append)
    idle = batch_of(2, 1, 30, triggerExecution=5)
    for progress in (
        [],
        [batch_of(0, 10, 10, pairs=4), batch_of(1, 20, 30, pairs=6)],
        [idle],
        [batch_of(2, 5, 35, control=7)],
    ):
        query.recentProgress.extend(progress)
        join.update()
        join.update()
    assert [(report.batch, report.rows_out) for report in join.reports] == [(0, 4), (1, 6), (2, 0)]
    totals = Totals.of(join.reports, 4)
    assert (totals.batches, totals.node_rows, totals.batch_ms) == (3, (32, 3, 0, 0), 200)
    assert join.view is not None
    assert [*join.view.moments] == heard
    assert [each.batch for each in heard] == [0, 1, 2]
    join.forget_batches()
    assert join.reports == []


def test_a_join_is_drained_when_it_has_read_what_it_published_itself(
    query_and_offsets: tuple[FakeQuery, FakeOffsets],
) -> None:
    query, offsets = query_and_offsets
    join = policy_join(lambda _: None)

    def drained_after(progress: dict[str, Any] | None, *answers: dict[str, int] | None, **more: int) -> bool:
        query.recentProgress.extend([progress] if progress else [])
        offsets.answers.extend(answers)
        join.update()
        join.look_whether_drained({"views": 30, **more})
        assert offsets.answers == []
        return join.is_drained

    assert not drained_after(None)
    assert not drained_after(batch_of(0, 29, 29))  # rows are missing, so the broker is not asked
    assert not drained_after(batch_of(1, 1, 30), None)  # the broker did not answer
    assert not drained_after(None, prices=1)  # rows of the other stream are missing
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
