"""The parts of the page, `balajoin top`, recorded runs and their pictures. `test_page` tests the page itself."""

import http.client
import io
import json
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from rich.console import Console

from balajoin import cli
from balajoin.compute.statistics import NodeStatistics
from balajoin.config.address import Address, AddressError
from balajoin.errors import BalaJoinError, ConfigError, SetupError
from balajoin.observe.hot_keys import HotKeys, JoinHotKey
from balajoin.observe.live import plots, reading, recording, window
from balajoin.observe.live.hub import KEPT_BATCHES, Hub
from balajoin.observe.live.moment import Moment, SkewedKey, printable
from balajoin.observe.live.onlookers import Onlookers
from balajoin.observe.live.picture import Join, bar, picture, size, spark_line
from balajoin.observe.live.recording import Recording
from balajoin.observe.live.server import LivePage
from balajoin.observe.live.telling import Telling
from balajoin.observe.report import BatchReport
from balajoin.routing.policies import HotKey
from balajoin.routing.statistics import SourceStatistics
from live_data import ANYWHERE, BEGIN_MS, moment, served
from progress_data import ended, read
from samples import join_toml

pytestmark = pytest.mark.usefixtures("untouched_logging")

_TIMEOUT_S = 20

# --- addresses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "host", "port", "url", "is_loopback"),
    [
        ("127.0.0.1:8787", "127.0.0.1", 8787, "http://127.0.0.1:8787/", True),
        ("localhost:0", "localhost", 0, "http://localhost:0/", True),
        ("[::1]:80", "::1", 80, "http://[::1]:80/", True),
        ("0.0.0.0:8787", "0.0.0.0", 8787, "http://127.0.0.1:8787/", False),
        ("[::]:1", "::", 1, "http://[::1]:1/", False),
        ("join-1.example:65535", "join-1.example", 65535, "http://join-1.example:65535/", False),
    ],
)
def test_addresses_are_a_host_and_a_port(written: str, host: str, port: int, url: str, is_loopback: bool) -> None:
    address = Address.parse(written)
    assert (address.host, address.port, address.url, address.is_loopback) == (host, port, url, is_loopback)
    assert str(address) == written


@pytest.mark.parametrize("written", ["", "8787", ":8787", "localhost", "localhost:65536", "::1:80", "[x]:1", "a b:1"])
def test_anything_else_is_no_address(written: str) -> None:
    with pytest.raises(AddressError):
        Address.parse(written)


# --- moments ----------------------------------------------------------------------------------------------------------


@given(st.text())
def test_whatever_a_key_holds_it_is_printable_and_short(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert len(shown) <= 64
    if text.isprintable() and len(text) <= 64:
        assert shown == text


def test_no_control_character_gets_into_a_moment_from_wherever_it_comes() -> None:
    key = SkewedKey(key="\x1b]0;owned\x07\u202e", share=0.5, nodes=(0,))
    assert key.key == r"\x1b]0;owned\x07\u202e"
    line = json.dumps({**json.loads(moment().model_dump_json()), "join": "a\nb", "policy": "\x9b2J"})
    read_back = Moment.model_validate_json(line)
    assert (read_back.join, read_back.policy) == (r"a\nb", r"\x9b2J")


@pytest.mark.parametrize("wrong", [{"node_rows": ()}, {"node_rows": (-1, 2)}, {"b_all": 2.0}, {"rows_in": "many"}])
def test_what_is_no_moment_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        moment(**wrong)


# --- from a join's reports to its moments -----------------------------------------------------------------------------


def hot(hash_: int, rows: int, share: float, *nodes: int, key: str = "") -> HotKey:
    return HotKey(hash_, rows, share, nodes, key)


def source(number: int, *hot_keys: HotKey, skewed: Sequence[int] = (0, 0), **told: Any) -> SourceStatistics:
    return SourceStatistics(number, list(skewed), hot_keys=list(hot_keys), **told)


def report(batch: int = 0, second: int = 0, **told: Any) -> BatchReport:
    return BatchReport.of(ended(batch, second, **told))


def test_hot_keys_are_those_of_all_sources_together() -> None:
    keys = HotKeys()
    lists = [[hot(7, 50, 0.5, 2, 0), hot(8, 10, 0.1, 1)], [hot(7, 150, 0.5, 2, 3), hot(9, 60, 0.2, 0)], []]
    for number, found in enumerate(lists):
        keys.add(report(sources=[source(number, *found)]))
    assert keys.all() == [JoinHotKey(7, 0.5, (2, 0, 3)), JoinHotKey(9, 0.15, (0,)), JoinHotKey(8, 0.025, (1,))]
    keys.add(report(sources=[source(1, hot(9, 90, 0.9, 0)), None]))
    assert keys.all()[0] == JoinHotKey(9, 0.45, (0,))
    assert [key.hash for key in keys.all()] == [9, 7, 8]


def test_a_hot_key_keeps_the_name_that_a_source_once_told_for_as_long_as_it_is_hot() -> None:
    keys = HotKeys()
    keys.add(report(sources=[source(0, hot(7, 5, 0.5, 0, key="user-7")), source(1, hot(7, 5, 0.5, 0))]))
    keys.add(report(sources=[source(0, hot(7, 5, 0.5, 0), hot(-1, 3, 0.3, 0))]))
    assert [key.name for key in keys.all()] == ["user-7", "hash ffffffffffffffff"]
    keys.add(report(sources=[source(0), source(1)]))
    keys.add(report(sources=[source(0, hot(7, 5, 0.5, 0))]))
    assert [key.name for key in keys.all()] == ["hash 0000000000000007"]


def telling(moments: list[Moment], nodes: int = 2, half_life_ms: int = 10_000) -> Telling:
    return Telling(
        "clicks",
        policy="bala-join",
        nodes=nodes,
        epsilon=0.2,
        half_life_ms=half_life_ms,
        inputs=("views", "prices"),
        listeners=[moments.append],
    )


def test_a_moment_tells_what_the_batch_did() -> None:
    moments: list[Moment] = []
    telling(moments)(
        report(
            3,
            5,
            inputs=[read("views", {0: 5}, {0: 15}, latest={0: 20}), read("control", {0: 0}, {0: 3}, latest={0: 9})],
            entered={"probe": (8, 2), "build": (0, 1)},
            rows=(6, 4),
            probe_bytes=100,
            build_bytes=10,
            sources=[
                source(0, hot(7, 5, 0.5, 1, 0, key="u"), skewed=(4, 1), loads=[50, 40], signals=2, signal_bytes=9)
            ],
            nodes=[
                NodeStatistics(0, pairs=7, late_rows=1, stored_rows=30, pulls=1, replica_bytes=64),
                NodeStatistics(1, pairs=2, stored_rows=12),
            ],
        )
    )
    assert moments == [
        Moment(
            join="clicks",
            policy="bala-join",
            epsilon=0.2,
            batch=3,
            ended_ms=int(datetime(2026, 1, 1, 0, 0, 5, 100_000, UTC).timestamp() * 1000),
            duration_ms=100,
            rows_in=11,
            rows_out=9,
            node_rows=(6, 4),
            skewed_rows=(4, 1),
            b_all=2 / 6,
            b_skewed=0.2,
            traffic={"probe": 100, "build": 10, "replica": 64, "signal": 9, "fetched": 0},
            signals=2,
            pulls=1,
            waiting_rows=5,
            late_rows=1,
            dead_letters=3,
            stored_rows=42,
            hot_keys=(SkewedKey(key="u", share=0.5, nodes=(1, 0)),),
        )
    ]


def test_what_a_batch_does_not_tell_is_as_it_was() -> None:
    moments: list[Moment] = []
    tell = telling(moments)
    nodes = [NodeStatistics(0, stored_rows=30), NodeStatistics(1, stored_rows=12)]
    tell(report(0, rows=(6, 4), sources=[source(0, hot(7, 5, 0.5, 1), loads=[50, 40])], nodes=nodes))
    tell(report(1, nodes=[None, NodeStatistics(1, stored_rows=20)]))
    assert (moments[1].node_rows, moments[1].stored_rows) == ((0, 0), 50)
    assert (moments[1].b_skewed, moments[1].hot_keys) == (moments[0].b_skewed, moments[0].hot_keys)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=8))
def test_b_of_all_rows_counts_them_half_after_each_half_life(batches: list[tuple[int, int, int]]) -> None:
    moments: list[Moment] = []
    tell = telling(moments)
    at_s = 0
    past: list[tuple[int, int, int]] = []
    for number, (pause_s, *rows) in enumerate(batches):
        at_s = min(at_s + pause_s, 59)
        past.append((at_s, rows[0], rows[1]))
        tell(report(number, at_s, rows=rows))
        loads = [sum(each[1 + node] * 0.5 ** ((at_s - each[0]) / 10) for each in past) for node in (0, 1)]
        expected = (max(loads) - min(loads)) / max(loads) if max(loads) else None
        assert moments[-1].b_all == (None if expected is None else pytest.approx(expected))


# --- the hub ----------------------------------------------------------------------------------------------------------


def batches_in(lines: Sequence[str]) -> list[tuple[str, int]]:
    return [(told["join"], told["batch"]) for told in map(json.loads, lines)]


def test_the_hub_keeps_the_last_batches_of_every_join_in_their_order() -> None:
    hub = Hub()
    for batch in range(KEPT_BATCHES + 5):
        hub.add(moment(batch, "busy"))
        if batch % 200 == 0:
            hub.add(moment(batch, "quiet"))
    _, lines = hub.past()
    told = batches_in(lines)
    assert [batch for join, batch in told if join == "busy"] == list(range(5, KEPT_BATCHES + 5))
    assert [batch for join, batch in told if join == "quiet"] == [0, 200, 400, 600]
    assert told.index(("quiet", 200)) == told.index(("busy", 200)) + 1


def test_the_hub_is_bounded_in_bytes_too() -> None:
    hub = Hub()
    nodes = tuple(range(1024))
    keys = tuple(SkewedKey(key=f"k{number}", share=0.01, nodes=nodes) for number in range(32))
    for batch in range(60):
        hub.add(moment(batch, node_rows=nodes, skewed_rows=nodes, hot_keys=keys))
    _, lines = hub.past()
    assert 1 < len(lines) < 60
    assert sum(map(len, lines)) <= 4 << 20
    assert batches_in(lines)[-1] == ("clicks", 59)


def test_a_reader_waits_for_news_gets_them_once_and_ends_when_the_hub_is_closed() -> None:
    hub = Hub()
    hub.add(moment(0))
    last, _ = hub.past()
    assert hub.wait(last, 0) == (last, [])
    threading.Timer(0.05, hub.add, [moment(1)]).start()
    news = hub.wait(last, _TIMEOUT_S)
    assert news is not None
    assert batches_in(news[1]) == [("clicks", 1)]
    threading.Timer(0.05, hub.close).start()
    assert hub.wait(news[0], _TIMEOUT_S) is None


# --- the server -------------------------------------------------------------------------------------------------------


def answer(url: str, path: str, **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=_TIMEOUT_S)
    connection.request("GET", path, headers=headers)
    return connection.getresponse()


def test_the_page_runs_nothing_but_its_own_script() -> None:
    with served() as (_, url):
        page = answer(url, "/")
        policy = page.headers["Content-Security-Policy"]
        assert page.status == 200
        assert page.headers.get_content_type() == "text/html"
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "*" not in policy
        assert page.headers["X-Content-Type-Options"] == "nosniff"
        text = page.read().decode()
        assert not any(sink in text for sink in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write"))
        assert "http://" not in text  # the page loads nothing from elsewhere
        assert "https://" not in text
        assert answer(url, "/etc/passwd").status == 404


def test_a_local_page_answers_to_no_other_name() -> None:
    """Otherwise a web site whose name resolves to this machine could read the page."""
    with served() as (_, url):
        assert answer(url, "/events", Host="evil.example").status == 421
        assert answer(url, "/", Host="evil.example:8787").status == 421
        for name in ("localhost:8787", "127.0.0.1", "[::1]:8787"):
            assert answer(url, "/", Host=name).status == 200


def events(response: http.client.HTTPResponse) -> Iterator[tuple[str, Any]]:
    event = ""
    while line := response.readline().decode():
        name, _, content = line.strip().partition(": ")
        if name == "event":
            event = content
        elif name == "data":
            yield event, json.loads(content)


def test_a_reader_gets_the_past_of_all_joins_then_each_batch_then_the_end() -> None:
    with served(moment(0, "clicks"), moment(0, "orders")) as (hub, url):
        response = answer(url, "/events")
        assert response.headers.get_content_type() == "text/event-stream"
        stream = events(response)
        event, past = next(stream)
        assert event == "history"
        assert [Moment.model_validate(each) for each in past["batches"]] == [moment(0, "clicks"), moment(0, "orders")]
        hub.add(moment(1, "orders"))
        event, told = next(stream)
        assert (event, Moment.model_validate(told)) == ("batch", moment(1, "orders"))
        hub.close()
        assert [event for event, _ in stream] == ["end"]


def test_readers_are_limited_and_make_room_when_they_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("balajoin.observe.live.server._MOST_READERS", 1)
    with served(moment()) as (hub, url):
        first = answer(url, "/events")
        next(events(first))
        assert answer(url, "/events").status == 503
        first.close()
        for batch in range(1, 1_000):  # until writing to the client fails
            hub.add(moment(batch))
            if answer(url, "/events").status == 200:
                break
        else:
            pytest.fail("the place of a reader that is gone stays taken")


def test_a_port_that_is_taken_is_one_clear_problem() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError) as caught:
            LivePage(Address("127.0.0.1", port), Hub())
    (problem,) = caught.value.problems
    assert str(problem) == (
        f"page.address: cannot listen on 127.0.0.1:{port}: address already in use "
        "(choose another port, or 0 for any that is free)"
    )


def test_a_port_or_file_that_the_demo_cannot_have_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert cli.main(["demo", "--page", f"127.0.0.1:{port}"]) == 2
    assert f"balajoin: --page: cannot listen on 127.0.0.1:{port}: address already in use" in capsys.readouterr().err
    assert cli.main(["demo", "--record", str(tmp_path)]) == 2
    assert f"balajoin: --record: cannot write {tmp_path}: is a directory" in capsys.readouterr().err


def test_onlookers_are_the_page_the_record_both_or_none(tmp_path: Path) -> None:
    with Onlookers(None, None) as none:
        assert (none.listeners, none.url) == ([], None)
    with Onlookers(ANYWHERE, tmp_path / "run.jsonl") as both:
        for listener in both.listeners:
            listener(moment(4))
        assert both.url is not None
        assert next(reading.moments(both.url)) == [moment(4)]
    assert list(recording.read(tmp_path / "run.jsonl")) == [moment(4)]


# --- top --------------------------------------------------------------------------------------------------------------


def drawn(joins: Sequence[Join], width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(picture(joins, width))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert max(map(len, text.splitlines())) <= width
    return text


def test_top_shows_what_the_page_does() -> None:
    past = [moment(batch, b_skewed=batch / 10) for batch in range(4)]
    lines = [line.strip() for line in drawn([Join(past, 0.0)]).splitlines()]
    assert lines[:12] == [
        "last minute     clicks: bala-join, 2 nodes",
        "rows in         118/s",  # 400 rows in the 3.4 s since the first batch began
        "rows out        294/s",
        "last batch      3, took 0.4 s",
        "rows            30 waiting, 1,000 stored",
        "set aside       0 late, 0 dead letters",
        "B, balanced     0.30 above ε 0.2 ▁▁▂▃",
        "B, all rows     0.33",
        "busiest node    60% of rows, 1.2× its share",
        "traffic         probe 20.0 kB, build 2.4 kB, replica 280 B, signal 32 B",
        "signals, pulls  4, 4",
        "rows by node",
    ]
    assert lines[12].split() == ["node", "0", "█" * len(lines[12].split()[2]), "240", "60%"]
    assert lines[13].split()[3:] == ["160", "40%"]
    assert lines[-1].split() == ["user-1", "40%", "□■"]


def test_top_of_an_idle_join_many_nodes_and_several_joins() -> None:
    assert "0/s" in drawn([Join([moment()], 60.0)])
    assert "60 s ago" in drawn([Join([moment()], 60.0)])
    rows = tuple(range(100))
    keys = (SkewedKey(key="[bold]k", share=0.1, nodes=rows),)
    many = drawn([Join([moment(node_rows=rows, skewed_rows=rows, hot_keys=keys)], 0.0)])
    assert "node 99 " in many
    assert "node 50 " not in many
    assert "[bold]k" in many
    assert "100 nodes, home 0" in many
    beside = drawn([Join([moment(join=name)], 0.0) for name in ("clicks", "orders")], 160).splitlines()
    assert "clicks" in beside[0]
    assert "orders" in beside[0]
    assert drawn([]).strip() == "connected; no batch has ended yet"


def test_top_reads_a_running_service_and_says_when_it_ends(capsys: pytest.CaptureFixture[str]) -> None:
    with served(moment(0)) as (hub, url):
        assert cli.main(["top", "--url", url]) == 0
        assert "clicks: bala-join, 2 nodes" in capsys.readouterr().out
        news = reading.moments(url)
        assert next(news) == [moment(0)]
        hub.add(moment(1))
        assert next(news) == [moment(1)]
        hub.close()
        with pytest.raises(BalaJoinError, match="has ended"):
            next(news)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "127.0.0.1:1", "http://[::1", "ftp://x", ""])
def test_a_service_that_is_not_there_is_one_line(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["top", "--url", url]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "is it running, with page.address set?" in line


def test_what_is_no_service_of_ours_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with served(moment()) as (_, url):
        assert cli.main(["top", "--url", f"{url}elsewhere"]) == 1
        assert "404" in capsys.readouterr().err
        monkeypatch.setattr("balajoin.observe.live.reading.Moment", SkewedKey)  # a version with other fields
        assert cli.main(["top", "--url", url]) == 1
    assert "another version" in capsys.readouterr().err


FILE = join_toml()


def test_top_finds_the_service_by_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "join.toml"
    with served(moment()) as (_, url):
        file.write_text(f'{FILE}[page]\naddress = "{urlsplit(url).netloc}"\n')
        assert cli.main(["top", "-c", str(file)]) == 0
    file.write_text(FILE)
    assert cli.main(["top", "-c", str(file)]) == 2
    assert "page.address: names no port at which to look" in capsys.readouterr().err


@pytest.mark.parametrize("written", ['"8787"', "8787", '"localhost:http"', "{ host = 'x', port = 1 }"])
def test_a_wrong_address_is_told_with_its_line(
    written: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "join.toml"
    file.write_text(f"{FILE}[page]\naddress = {written}\n")
    assert cli.main(["check", "-c", str(file)]) == 2
    assert 'line 15: page.address: must be a host and a port ("127.0.0.1:8787")' in capsys.readouterr().err


# --- figures ----------------------------------------------------------------------------------------------------------


def test_figures_over_several_moments() -> None:
    moments = [moment(batch) for batch in range(100)]
    assert window.speeds(moments) == (100.0, 250.0)
    assert len(window.last_minute(moments)) == 60
    assert window.node_rows(moments[:3]) == [180, 120]
    assert window.traffic(moments[:2]) == {"probe": 10_000, "build": 1_200, "replica": 140, "signal": 16}
    after_a_pause = [moment(0), moment(1, ended_ms=BEGIN_MS + 50_000)]
    assert window.speeds(after_a_pause) == (2.0, 5.0)


@pytest.mark.parametrize(
    ("part", "drawn"),
    [(0.0, ""), (1.0, "████"), (0.5, "██"), (1 / 32, "▏"), (0.6, "██▍"), (0.999, "████"), (-1.0, ""), (2.0, "████")],
)
def test_bars_are_drawn_in_eighths(part: float, drawn: str) -> None:
    assert bar(part, 4) == drawn


@pytest.mark.parametrize(
    ("count", "written"), [(0, "0 B"), (999, "999 B"), (1_000, "1.0 kB"), (2_345_678, "2.3 MB"), (4.5e15, "4500.0 TB")]
)
def test_sizes_have_a_unit(count: int, written: str) -> None:
    assert size(count) == written


def test_a_line_of_characters_goes_from_nothing_to_one() -> None:
    assert spark_line([-1, 0, 0.49, 0.5, 0.99, 1, 7]) == "▁▁▄▅███"


# --- recorded runs and their pictures ---------------------------------------------------------------------------------


def test_a_run_is_recorded_and_read_back_also_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "new" / "run.jsonl"
    Recording(path).add(moment(0))
    Recording(path).add(moment(1, "orders"))
    with path.open("a") as file:
        file.write('{"join": "cut short by a cra')
    assert list(recording.read(path)) == [moment(0), moment(1, "orders")]


def test_a_record_goes_on_after_a_line_that_was_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text('{"join": "cut short by a cra')
    Recording(path).add(moment(0))
    assert list(recording.read(path)) == [moment(0)]


def test_a_record_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    line = len(moment(100).model_dump_json()) + 1
    record = Recording(path, largest_bytes=3 * line)
    for batch in range(100, 111):
        record.add(moment(batch))
    kept = [each.batch for name in ("run.jsonl.1", "run.jsonl") for each in recording.read(tmp_path / name)]
    assert kept == [106, 107, 108, 109, 110]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["run.jsonl", "run.jsonl.1"]


def test_a_record_that_cannot_be_begun_is_a_problem_of_its_setting(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^run.record: cannot write .*: is a directory"):
        Recording(tmp_path)


def test_a_join_outlives_a_record_that_fails_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "run.jsonl"
    record = Recording(path)
    path.unlink()
    path.mkdir()
    record.add(moment(3))
    assert "lacks batch 3 of clicks" in caplog.text


def recorded(folder: Path, *moments: Moment) -> Path:
    path = folder / "run.jsonl"
    for each in moments:
        Recording(path).add(each)
    return path


def test_a_recorded_run_becomes_three_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = recorded(
        tmp_path,
        *[moment(batch, "a", policy="hash", b_skewed=None, node_rows=(90, 10), b_all=0.9) for batch in range(5)],
        *[moment(batch, "b") for batch in range(5)],
        *[moment(batch, "c") for batch in range(1)],
    )
    assert cli.main(["plot", str(run), "-o", str(tmp_path / "first")]) == 0
    names = ["rows-by-node.svg", "balance-over-time.svg", "traffic-and-balance.svg"]
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / "first" / name) for name in names]
    assert cli.main(["plot", str(run), "-o", str(tmp_path / "second")]) == 0
    for name in names:
        picture = (tmp_path / "first" / name).read_text()
        assert picture == (tmp_path / "second" / name).read_text()  # so committed pictures change only with the run
        assert len(picture) < 100_000
        assert "hash" in picture
        assert "bala-join (b)" in picture
        assert "bala-join (c)" in picture
    assert "hash: 1.80×" in (tmp_path / "first" / names[0]).read_text()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "no such file or directory"),
        ("", "no batch is recorded"),
        ("not JSON\n", "line 1, is no batch of a recorded run"),
        ('{"join": "x"}\n', "line 1, is no batch of a recorded run (policy: Field required)"),
    ],
)
def test_what_is_no_recorded_run_is_one_line(
    content: str | None, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.jsonl"
    if content is not None:
        path.write_text(content)
    assert cli.main(["plot", str(path), "-o", str(tmp_path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line


def test_runs_with_different_numbers_of_nodes_are_not_added_up(tmp_path: Path) -> None:
    run = recorded(tmp_path, moment(0), moment(1, node_rows=(1, 2, 3), skewed_rows=(0, 0, 0)))
    with pytest.raises(BalaJoinError, match="different numbers of nodes"):
        list(plots.draw([run], tmp_path))


def test_a_batch_that_was_repeated_counts_once_and_a_change_of_policy_is_another_run(tmp_path: Path) -> None:
    moments = [moment(0), moment(1, rows_in=5), moment(1), moment(2, policy="hash"), moment(3, policy="hash")]
    runs = plots._runs([recorded(tmp_path, *moments)])
    assert runs == {"hash": moments[3:], "bala-join": [moments[0], moments[2]]}


def test_without_matplotlib_plot_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SetupError, match=r"pip install 'balajoin\[plot\]'"):
        list(plots.draw([recorded(tmp_path, moment())], tmp_path))
