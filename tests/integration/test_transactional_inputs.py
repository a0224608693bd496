"""Transactional inputs on a real broker: aborted records leave gaps in the offsets, and no results."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from balajoin.observe.report import BatchReport
from kafka_data import Sent, await_decided, begin_transaction, send
from pipeline import START, Pipeline, rows

Pairs = Counter[tuple[bytes, bytes]]


def write(bootstrap: str, topic: str, records: list[Sent], *, commit: bool) -> list[Sent]:
    """Writes the records in one transaction. Returns those that are committed."""
    transaction = begin_transaction(bootstrap, topic, records)
    if commit:
        transaction.commit_transaction()
        return records
    transaction.abort_transaction()
    return []


def numbered(prefix: str, first: int, count: int = 6) -> list[Sent]:
    """Records in two partitions with three keys, all within the join's interval."""
    numbers = range(first, first + count)
    return [Sent(b"k%d" % (n % 3), f"{prefix}{n}".encode(), START + n, n % 2) for n in numbers]


def pairs(probe: Iterable[Sent], build: Iterable[Sent]) -> Pairs:
    build = list(build)
    return Counter((p.value or b"", b.value or b"") for p in probe for b in build if p.key == b.key)


def found(running: Pipeline) -> Pairs:
    results = running.results().select("probe_value", "build_value").collect()
    return Counter((bytes(row[0]), bytes(row[1])) for row in results)


def rows_in(batches: list[Any]) -> int:
    return sum(BatchReport.of(batch).rows_in for batch in batches)


def test_only_committed_records_are_joined_each_once(pipeline: Callable[..., Pipeline]) -> None:
    """Partitions begin and end with aborted records, some batches have only these, and one batch is repeated."""
    running = pipeline(lateness="1 h")
    counted: dict[str, list[Sent]] = {"probe": [], "build": []}
    topics = {"probe": running.probe.topic, "build": running.build.topic}
    for start in range(3):
        running.max_rows_per_batch = 10 if start == 1 else None
        before = sum(map(len, counted.values()))
        for side, topic in topics.items():
            plain = numbered(f"{side}-plain-", 100 * start)
            for commit in (False, True, False):
                records = numbered(f"{side}-{commit}-", 100 * start + 10)
                counted[side] += write(running.bootstrap, topic, records, commit=commit)
            send(running.bootstrap, topic, plain)
            counted[side] += plain
            write(running.bootstrap, topic, numbered(f"{side}-aborted-", 100 * start + 20), commit=False)
            await_decided(running.bootstrap, topic)
        batches = running.run()
        assert rows_in(batches) == sum(map(len, counted.values())) - before
        if start == 1:
            running.crash_before_last_commit()
        for topic in topics.values():
            write(running.bootstrap, topic, numbered("only-aborted-", 100 * start + 30), commit=False)
            await_decided(running.bootstrap, topic)
        running.run()
    assert found(running) == pairs(counted["probe"], counted["build"])
    assert running.results().select("id").distinct().count() == running.results().count()


def test_an_open_transaction_holds_its_partition_back_until_it_is_decided(pipeline: Callable[..., Pipeline]) -> None:
    running = pipeline(lateness="1 h")
    build = numbered("build-", 0)
    send(running.bootstrap, running.build.topic, build)
    first, second, third = (numbered("probe-", 10 * n) for n in range(3))
    send(running.bootstrap, running.probe.topic, first)
    transaction = begin_transaction(running.bootstrap, running.probe.topic, second)
    send(running.bootstrap, running.probe.topic, third)
    running.run()
    assert found(running) == pairs(first, build)
    transaction.commit_transaction()
    await_decided(running.bootstrap, running.probe.topic)
    running.run()
    assert found(running) == pairs([*first, *second, *third], build)


def test_uncommitted_records_are_joined_where_the_setting_asks_for_them(pipeline: Callable[..., Pipeline]) -> None:
    running = pipeline({"isolation_level": "read_uncommitted"}, lateness="1 h")
    probe, build = numbered("probe-", 0), numbered("build-", 0)
    write(running.bootstrap, running.probe.topic, probe, commit=False)
    write(running.bootstrap, running.build.topic, numbered("aborted-", 10), commit=False)
    write(running.bootstrap, running.build.topic, build, commit=True)
    await_decided(running.bootstrap, running.build.topic)
    running.run()
    assert found(running) == pairs(probe, build)


def test_somebody_elses_open_transaction_on_the_joins_own_topics_holds_nothing_back(
    pipeline: Callable[..., Pipeline],
) -> None:
    running = pipeline(lateness="1 h", skew={"threshold": 0.1, "lease": "1 s"})
    open_ones = [
        begin_transaction(running.bootstrap, topic, [Sent(b"0", b"{}", START)])
        for topic in (running.control, running.replicas)
    ]
    send(running.bootstrap, running.build.topic, rows(0, 100))
    send(running.bootstrap, running.probe.topic, rows(100, 300))
    batches = running.run()
    for transaction in open_ones:
        transaction.abort_transaction()
    assert sum(node.pulls for batch in batches for node in BatchReport.of(batch).nodes) > 0
    assert running.assert_equals_batch_join() > 1000
