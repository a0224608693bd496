"""A batch's progress is decoded completely, and each figure has the right name."""

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from balajoin.compute.statistics import NodeStatistics
from balajoin.observe.following import Reports
from balajoin.observe.report import BatchReport, balance, balance_factor
from balajoin.routing.policies import HotKey
from balajoin.routing.statistics import SourceStatistics
from progress_data import FakeQuery, ended, read

NODES = 3
COUNTS = st.integers(0, 10**9)
HOT_KEYS = st.builds(
    HotKey,
    hash=st.integers(-(2**63), 2**63 - 1),
    rows=COUNTS,
    share=st.floats(0, 1),
    nodes=st.lists(st.integers(0, NODES - 1), min_size=1, unique=True).map(tuple),
)


@st.composite
def source_notes(draw: st.DrawFn) -> list[SourceStatistics | None]:
    rows = st.lists(COUNTS, min_size=NODES, max_size=NODES)
    return [
        SourceStatistics(
            number,
            draw(rows),
            loads=draw(rows | st.just([])),
            signals=draw(COUNTS),
            signal_bytes=draw(COUNTS),
            fetched_bytes=draw(COUNTS),
            hot_keys=draw(st.lists(HOT_KEYS, max_size=3)),
        )
        if draw(st.booleans())
        else None
        for number in range(draw(st.integers(0, 3)))
    ]


@st.composite
def node_notes(draw: st.DrawFn) -> list[NodeStatistics | None]:
    names = ("pairs", "pulls", "replica_bytes", "signal_bytes", "stored_rows")
    watermarks = st.fixed_dictionaries({"probe": st.integers(), "build": st.integers()})
    return [
        NodeStatistics(
            node,
            **{name: draw(COUNTS) for name in names},
            pull_waits=draw(st.lists(COUNTS)),
            watermarks=draw(watermarks),
        )
        if draw(st.booleans())
        else None
        for node in range(NODES)
    ]


@given(source_notes(), node_notes(), st.lists(COUNTS, min_size=NODES, max_size=NODES), COUNTS, COUNTS)
def test_what_operators_note_comes_out_as_they_noted_it(
    sources: list[SourceStatistics | None], nodes: list[NodeStatistics | None], rows: list[int], probe: int, build: int
) -> None:
    progress = ended(4, rows=rows, probe_bytes=probe, build_bytes=build, sources=sources, nodes=nodes)
    report = BatchReport.of(progress)
    known_sources, known_nodes = [s for s in sources if s], [n for n in nodes if n]
    assert report.sources == tuple(known_sources)
    assert report.nodes == tuple(known_nodes)
    assert report.routed_rows == tuple(rows)
    replica_bytes = sum(node.replica_bytes for node in known_nodes)
    signal_bytes = sum(teller.signal_bytes for teller in (*known_sources, *known_nodes))
    assert report.traffic == {
        "probe": probe,
        "build": build,
        "replica": replica_bytes,
        "signal": signal_bytes,
        "fetched": sum(source.fetched_bytes for source in known_sources),
    }
    assert report.rows_out == sum(node.pairs for node in known_nodes)
    by_node = [sum(source.skewed_rows[node] for source in known_sources) for node in range(NODES)]
    assert report.skewed_rows == (tuple(by_node) if known_sources else ())
    balanced = [[(source.loads or source.skewed_rows)[node] for source in known_sources] for node in range(NODES)]
    assert report.balance == balance_factor([sum(rows) for rows in balanced])
    for source in known_sources:
        assert balance([source]) == balance_factor(source.loads or source.skewed_rows)


PARTITIONS = st.dictionaries(st.integers(0, 3), st.tuples(COUNTS, COUNTS, COUNTS), min_size=1)


@given(PARTITIONS, PARTITIONS)
def test_lag_is_what_lies_behind_the_offsets_that_were_read(
    views: dict[int, tuple[int, int, int]], control: dict[int, tuple[int, int, int]]
) -> None:
    """The cases give each partition's start, the records read, and the records left."""

    def offsets(partitions: dict[int, tuple[int, int, int]], until: int) -> dict[int, int]:
        return {partition: sum(counts[:until]) for partition, counts in partitions.items()}

    inputs = [
        read("views", offsets(views, 1), offsets(views, 2), latest=offsets(views, 3)),
        read("control", None, offsets(control, 2), latest=offsets(control, 3)),
    ]
    report = BatchReport.of(ended(0, inputs=inputs))
    assert [(read.topic, read.lag) for read in report.inputs] == [
        ("views", sum(counts[2] for counts in views.values())),
        ("control", sum(counts[2] for counts in control.values())),
    ]
    assert [read.consumed for read in report.inputs] == [offsets(views, 2), offsets(control, 2)]


def test_rows_enter_or_are_dead_letters_and_gaps_between_offsets_are_neither() -> None:
    inputs = [read("views", {0: 10}, {0: 1000}), read("prices", {0: 0}, {0: 5})]
    report = BatchReport.of(ended(0, inputs=inputs, entered={"probe": (7, None), "build": (None, 3)}))
    assert (report.entered_rows, report.dead_letters) == ({"probe": 7, "build": 0}, {"probe": 0, "build": 3})
    assert report.rows_in == 10


def test_streams_that_are_not_of_kafka_count_for_nothing() -> None:
    rate: dict[str, Any] = {"startOffset": "4", "endOffset": "5", "latestOffset": "5", "numInputRows": 9}
    files: dict[str, Any] = {"startOffset": None, "endOffset": '{"logOffset":3}', "numInputRows": 9}
    silent: dict[str, Any] = {"startOffset": None, "endOffset": None, "latestOffset": None, "numInputRows": 0}
    assert BatchReport.of(ended(0, inputs=[rate, files, silent])).inputs == ()


def test_when_a_batch_was_and_what_its_time_went_into() -> None:
    report = BatchReport.of(ended(7, 5, durations_ms={"addBatch": 900, "walCommit": 30, "triggerExecution": 1500}))
    assert (report.batch, report.run_id, report.name) == (7, "a-start", "a-join")
    assert report.ended == datetime(2026, 1, 1, 0, 0, 6, 500_000, UTC)
    assert (report.duration_ms, report.phases_ms) == (1500, {"addBatch": 900, "walCommit": 30})


def test_each_batch_is_told_once_and_idling_never() -> None:
    query = FakeQuery()
    reports = Reports(query)
    idle = ended(2, 3, durations_ms={"triggerExecution": 10})
    seen = []
    for progress in ([], [ended(0, 1), ended(1, 2)], [idle], [ended(2, 4)]):
        query.recentProgress.extend(progress)
        seen.append([report.batch for report in reports.new()])
        assert reports.new() == []
    assert seen == [[], [0, 1], [], [2]]
