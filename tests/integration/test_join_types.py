"""Joins of every type on a real broker, against Spark's own batch join of the same topics."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import functions as F

from balajoin.core.spec import JoinType
from balajoin.observe.report import BatchReport
from kafka_data import Sent, everything, send
from pipeline import START, Pipeline, rows

HOUR_MS = 3_600_000
DECIDED_WITHIN_S = 180


@pytest.mark.parametrize(
    ("type_", "policy"),
    [
        ("left", "bala-join"),
        ("right", "bala-join"),
        ("full", "bala-join"),
        ("left_semi", "bala-join"),
        ("left_anti", "bala-join"),
        ("full", "sfr"),
    ],
)
def test_equals_the_batch_join(pipeline: Callable[..., Pipeline], type_: JoinType, policy: str) -> None:
    """Half of all rows have one key, which is spread. A third of the keys are on one side only."""
    given = {"keys": ["hot"], "threshold": 0.1, "lease": "1 s"}
    running = pipeline(type=type_, lateness="1 h", max_rows_per_batch=300, policy=policy, skew=given)
    for start in range(2):
        own = {topic: unmatched(topic.encode(), start) for topic in (running.build.topic, running.probe.topic)}
        send(running.bootstrap, running.build.topic, [*rows(start, 200, 200 * start), *own[running.build.topic]])
        send(running.bootstrap, running.probe.topic, [*rows(start + 100, 400, 200 * start), *own[running.probe.topic]])
        query = running.start()
        query.processAllAvailable()
        if start == 0:
            query.stop()
    # The last rows are the same on both sides, so each of them has a match.
    for later in range(1, 8 if type_ in ("right", "full") else 4):
        for topic in (running.build.topic, running.probe.topic):
            at = START + later * 10 * HOUR_MS
            send(running.bootstrap, topic, [Sent(b"end", b"e", at, partition) for partition in range(2)])
        query.processAllAvailable()
    query.stop()
    assert running.assert_equals_batch_join() > 20
    assert everything(running.bootstrap, running.late) == []
    assert any("tick_ms" not in record for record in control_records(running)), "no key was spread"


def unmatched(key: bytes, start: int) -> list[Sent]:
    return [Sent(key, b"%d" % n, START + (200 * start + n) * 1000, n % 2) for n in range(30)]


def test_the_last_rows_are_decided_when_nothing_comes_any_more(pipeline: Callable[..., Pipeline]) -> None:
    """The same after a restart, which by itself runs no batch that would tell whether rows wait."""
    running = pipeline(type="full", before="2 s", after="1 s", lateness="0 s", idle_after="2 s")
    send(running.bootstrap, running.build.topic, [Sent(key, b"b", START, 0) for key in (b"both", b"build")])
    send(running.bootstrap, running.probe.topic, [Sent(key, b"p", START + 500, 1) for key in (b"both", b"probe")])
    query = running.start()
    query.processAllAvailable()
    query.stop()
    query = running.start()
    listeners = number_of_listeners(running)
    pipeline(type="full").joined()
    assert number_of_listeners(running) == listeners, "the join left a listener behind"
    try:
        deadline = time.monotonic() + DECIDED_WITHIN_S
        while waiting_rows(query) != 0:
            assert time.monotonic() < deadline, query.lastProgress
            assert query.isActive, query.exception()
            time.sleep(0.2)
    finally:
        query.stop()
    found = (
        running.results().select("key", F.expr("probe_value is null"), F.expr("build_value is null"), "id").collect()
    )
    assert sorted(map(tuple, found)) == [
        (b"both", False, False, "1-0-0-0"),
        (b"build", True, False, "--0-1"),
        (b"probe", False, True, "1-1--"),
    ]
    assert all("tick_ms" in record for record in control_records(running))
    assert any(record["join"] for record in control_records(running)), "there are only ticks of starts"


def waiting_rows(query) -> int | None:
    reports = [BatchReport.of(progress) for progress in query.recentProgress]
    last = {node.node: node.waiting_rows for report in reports for node in report.nodes}
    return sum(last.values()) if last else None


def control_records(running: Pipeline) -> list[dict[str, Any]]:
    return [json.loads(record.value()) for record in everything(running.bootstrap, running.control)]


def number_of_listeners(running: Pipeline) -> int:
    return len(running.spark.streams._jsqm.listListeners())
