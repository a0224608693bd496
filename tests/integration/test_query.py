"""The join on a real broker, against Spark's own batch join of the same topics."""

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

import balajoin
from balajoin import Stream
from balajoin.observe.report import BatchReport
from balajoin.routing.rule import PolicyName
from kafka_data import Sent, everything, headers_of, send
from pipeline import MINUTE, START, Pipeline, rows


@pytest.mark.parametrize("hash_bits", [64, 2], ids=["", "colliding"])
def test_equals_the_batch_join_over_many_batches_and_restarts(
    pipeline: Callable[..., Pipeline], hash_bits: int
) -> None:
    running = pipeline(hash_bits=hash_bits, lateness="1 h", max_rows_per_batch=60)
    for start in range(3):
        send(running.bootstrap, running.build.topic, rows(start, 60, first=60 * start, large=True))
        send(running.bootstrap, running.probe.topic, rows(start + 100, 90, first=60 * start, large=True))
        if start == 1:
            shutil.rmtree(running.cache)
        batches = running.run()
        assert len(batches) >= 2
        for file in running.cache.rglob("*.rows") if start == 1 else ():
            file.write_bytes(b"damaged")
    assert running.assert_equals_batch_join() > 1000
    assert everything(running.bootstrap, running.late) == []


def test_a_plan_changes_nothing_until_it_is_prepared(pipeline: Callable[..., Pipeline]) -> None:
    running = pipeline(type="left", nodes=3)
    partitions = "spark.sql.shuffle.partitions"
    running.spark.conf.set(partitions, 5)
    planned = running.planned()
    assert running.spark.conf.get(partitions) == "5"
    assert everything(running.bootstrap, running.control) == []
    assert planned.prepare().isStreaming
    assert running.spark.conf.get(partitions) == "3"
    assert len(everything(running.bootstrap, running.control)) == 1


def test_a_checkpoint_may_be_a_link_to_a_folder(pipeline: Callable[..., Pipeline]) -> None:
    running = pipeline(lateness="1 h")
    (running.folder / "elsewhere").mkdir()
    (running.folder / "checkpoint").symlink_to(running.folder / "elsewhere")
    for start in range(2):
        send(running.bootstrap, running.build.topic, rows(start, 20, first=20 * start))
        send(running.bootstrap, running.probe.topic, rows(start + 100, 30, first=20 * start))
        running.run()
    assert running.assert_equals_batch_join() > 100
    assert (running.folder / "elsewhere" / "offsets").is_dir()


@pytest.mark.parametrize(
    ("policy", "measure"), [*((name, "rows") for name in get_args(PolicyName)), ("bala-join", "work")]
)
def test_every_policy_equals_the_batch_join(pipeline: Callable[..., Pipeline], policy: str, measure: str) -> None:
    """Half of all rows have one key, also on the build side. Some keys are in both partitions, some in one."""
    given = {"keys": ["hot"], "threshold": 0.1, "first_pass_rows": 100, "lease": "1 s", "measure": measure}
    running = pipeline(lateness="1 h", max_rows_per_batch=300, policy=policy, skew=given)
    for start in range(2):
        send(running.bootstrap, running.build.topic, rows(start, 200, first=200 * start))
        send(running.bootstrap, running.probe.topic, rows(start + 100, 600, first=200 * start))
        batches = running.run()
        assert len(batches) >= 2
    assert running.assert_equals_batch_join() > 10_000
    assert everything(running.bootstrap, running.late) == []
    signals = everything(running.bootstrap, running.control)
    assert bool(signals) == (policy != "hash")
    told = [node for batch in batches for node in BatchReport.of(batch).nodes]
    assert sum(node.foreign_records + node.stale_records + node.pins for node in told[-4:]) == 0
    if policy not in ("hash", "prpd"):  # their rows stay on the two nodes of the two partitions
        assert min(sum(node.probe_rows for node in told if node.node == number) for number in range(4)) > 50


@pytest.mark.parametrize("type_", ["inner", "full"])
def test_a_batch_that_was_begun_under_other_settings_leaves_nothing_behind(
    pipeline: Callable[..., Pipeline], type_: str
) -> None:
    """The first attempt spreads a hot key and pulls its build rows. The committed attempt places it elsewhere."""
    lost = pipeline(type=type_, lateness="1 h", skew={"threshold": 0.1, "lease": "1 s"})
    send(lost.bootstrap, lost.build.topic, rows(0, 100))
    send(lost.bootstrap, lost.probe.topic, rows(100, 300))
    lost.run_a_batch()
    lost.crash_before_last_commit()
    committed = replace(lost, policy="flow-join", skew={"threshold": 0.4, "lease": "1 s"})
    query = committed.start()
    query.processAllAvailable()
    told = [node for batch in query.recentProgress for node in BatchReport.of(batch).nodes]
    assert sum(node.stale_records for node in told) > 0
    assert sum(node.pulls for node in told) > 0
    for later in range(1, 8 if type_ == "full" else 1):  # rows are known to have no match after event time has passed
        for topic in (committed.probe.topic, committed.build.topic):
            send(committed.bootstrap, topic, [Sent(b"end", b"e", START + later * 600 * MINUTE, n) for n in range(2)])
        query.processAllAvailable()
    query.stop()
    assert committed.assert_equals_batch_join() > 1000


def test_nothing_on_the_control_topics_is_believed_but_what_this_checkpoint_wrote(
    pipeline: Callable[..., Pipeline],
) -> None:
    running = pipeline(lateness="1 h", skew={"threshold": 0.1, "lease": "1 s"})
    send(running.bootstrap, running.build.topic, rows(0, 100))
    send(running.bootstrap, running.probe.topic, rows(100, 300))
    running.run()
    left_behind = [*everything(running.bootstrap, running.control), *everything(running.bootstrap, running.replicas)]
    assert len(left_behind) > 4
    rubbish = [
        Sent(None, None, START),
        Sent(b"0", b"{", START),
        Sent(b"0", b'{"version":1,"home":1,"node":1}', START, 0, [("balajoin", b'{"node":2}')]),
        Sent(b"0", b'{"version":1,"home":99}', START, 0, [("balajoin", b"\xff\xfe"), ("balajoin", b"")]),
    ]
    for topic in (running.control, running.replicas):
        send(running.bootstrap, topic, rubbish)
    for folder in ("checkpoint", "results"):  # a new checkpoint, on topics with all records of the old one
        shutil.rmtree(running.folder / folder)
    batches = running.run()
    assert running.assert_equals_batch_join() > 1000
    told = [node for batch in batches for node in BatchReport.of(batch).nodes]
    assert sum(node.foreign_records for node in told) == 2 * len(rubbish)
    assert sum(node.stale_records for node in told) == len(left_behind)


@pytest.mark.parametrize(
    "key",
    [
        "cast(cast(key as string) as int)",
        "cast(cast(key as string) as double) / 4",
        "struct(cast(key as string) as a, timestamp_micros(1700000000000000 + length(key) + ascii(key)) as t)",
        "timestamp_seconds(1700000000 + cast(cast(key as string) as bigint))",
        "cast(cast(key as string) as decimal(10, 2))",
    ],
)
def test_keys_of_many_types(pipeline: Callable[..., Pipeline], key: str) -> None:
    running = pipeline({"key": key}, {"key": key})
    for topic in (running.probe.topic, running.build.topic):
        send(running.bootstrap, topic, [Sent(b"%d" % (n % 7), b"v%d" % n, START + n) for n in range(30)])
    running.run()
    assert running.assert_equals_batch_join() > 30
    assert running.results().schema["key"].dataType == running.batch_join().schema["probe_key"].dataType


def test_json_keys_and_times(pipeline: Callable[..., Pipeline]) -> None:
    running = pipeline(
        {"key": "json:$.user.id", "time": "json:$.at"},
        {"key": "json:$.user", "time": "json:$.when", "value": "upper(cast(value as string))"},
    )
    probe = [Sent(None, b'{"user": {"id": "u%d"}, "at": %d}' % (n % 3, START + n), 0) for n in range(9)]
    build = [Sent(None, b'{"user": "u%d", "when": "2023-11-14T22:13:20Z"}' % (n % 3), 0) for n in range(9)]
    send(running.bootstrap, running.probe.topic, probe)
    send(running.bootstrap, running.build.topic, build)
    running.run()
    assert running.assert_equals_batch_join() == 27


def test_what_cannot_be_joined_becomes_a_dead_letter_and_the_query_goes_on(pipeline: Callable[..., Pipeline]) -> None:
    key, time = "cast(cast(key as string) as int)", "cast(cast(value as string) as timestamp)"
    running = pipeline({"key": key, "time": time}, {"key": key})
    send(running.bootstrap, running.build.topic, [Sent(b"1", b"b", START)])
    good = b"2023-11-14 22:13:20"
    bad = [
        Sent(None, good, START, 0),
        Sent(b"not a number", good, START, 1, [("trace", b"abc")]),
        Sent(b"1", b"not a time", START, 1),
        Sent(b"1", None, START, 1),
        Sent(b"1", b"+12345-01-01 00:00:00", START, 1),
    ]
    send(running.bootstrap, running.probe.topic, [*bad, Sent(b"1", good, START, 1)])
    running.run()
    assert running.assert_equals_batch_join() == 1
    letters = everything(running.bootstrap, running.dead)
    assert Counter((m.key(), m.value()) for m in letters) == Counter((sent.key, sent.value) for sent in bad)
    places = {(h["balajoin-topic"], h["balajoin-partition"], h["balajoin-offset"]) for h in map(headers_of, letters)}
    assert places == {
        (running.probe.topic, p, o) for p, o in [("0", "0"), ("1", "0"), ("1", "1"), ("1", "2"), ("1", "3")]
    }
    for letter in letters:
        wrong = "time" if letter.key() == b"1" else "key"
        assert headers_of(letter)["balajoin-reason"].startswith(f"the {wrong} expression gave null")
    assert [headers_of(m)["trace"] for m in letters if m.key() == b"not a number"] == ["abc"]


def test_a_record_on_which_an_expression_fails_becomes_a_dead_letter_and_the_query_goes_on(
    pipeline: Callable[..., Pipeline],
) -> None:
    text = "decode(value, 'utf-8')"  # fails if the value is not UTF-8
    at = f"timestamp_millis(cast({text} as bigint))"  # fails if the number is too large
    running = pipeline({"key": "decode(key, 'utf-8')", "time": at, "value": text}, {"key": "decode(key, 'utf-8')"})
    send(running.bootstrap, running.build.topic, [Sent(b"1", b"b", START), Sent(b"\xff", b"b", START)])
    good = b"%d" % START
    bad = [Sent(b"\xff", good, START), Sent(b"1", b"\xff", START), Sent(b"1", b"9223372036854775807", START, 1)]
    send(running.bootstrap, running.probe.topic, [*bad, Sent(b"1", good, START, 1)])
    running.run()
    assert [row["key"] for row in running.results().collect()] == ["1"]
    letters = everything(running.bootstrap, running.dead)
    assert Counter((m.key(), m.value()) for m in letters) == Counter(
        [*((sent.key, sent.value) for sent in bad), (b"\xff", b"b")]
    )


def test_late_rows_are_told_apart_and_expired_state_is_gone(pipeline: Callable[..., Pipeline]) -> None:
    running = pipeline(lateness="1 min")
    hour, steps = 60 * MINUTE, 6  # build rows are evicted by the watermark of four batches ago
    for step in range(steps):
        for topic in (running.probe.topic, running.build.topic):
            records = [Sent(b"k%d" % n, b"v", START + step * hour + n, n % 2) for n in range(50)]
            send(running.bootstrap, topic, records)
        running.run()
    send(running.bootstrap, running.probe.topic, [Sent(b"k0", b"too late", START, 0)])
    running.run()
    assert running.results().count() == steps * 50  # the matches of the late row had expired
    (letter,) = everything(running.bootstrap, running.late)
    assert (letter.key(), letter.value()) == (b"k0", b"too late")
    assert headers_of(letter)["balajoin-topic"] == running.probe.topic
    assert headers_of(letter)["balajoin-offset"] == str(steps * 25)
    assert "late by" in headers_of(letter)["balajoin-reason"]
    for _ in range(4):  # the next batch deletes the local files of rows that expire in a batch
        for topic in (running.probe.topic, running.build.topic):
            send(running.bootstrap, topic, [Sent(b"k", b"v", START + (steps - 1) * hour, 0)])
        running.run()
    stored = (
        running.spark.read.format("statestore")
        .option("operatorId", 0)
        .option("stateVarName", "state")
        .load(str(running.folder / "checkpoint"))
        .filter(F.col("user_map_key.number") >= 0)
    )
    newest = START + (steps - 1) * hour
    assert stored.count() > 0
    times = [t for row in stored.collect() for t in _times(row)]
    assert min(times) >= newest * 1000, "rows of the first hours should have expired"
    files = sorted(running.cache.rglob("*.rows"))
    assert 0 < len(files) <= stored.count()


def _times(row: Any) -> list[int]:
    from balajoin.core.blocks import decode

    block = bytes(row.user_map_value.block if "user_map_value" in row else row.value.block)
    return list(decode(block[8:]).column("time").to_pylist())


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"nodes": 3}, "join.nodes is 3, but the checkpoint was made with 4"),
        ({"key": "value"}, "probe.key is 'value'"),
        ({"after": "2 h"}, "join.after is '2 h', but the checkpoint was made with"),
    ],
)
def test_what_state_depends_on_cannot_change(
    pipeline: Callable[..., Pipeline], change: dict[str, Any], named: str
) -> None:
    running = pipeline()
    send(running.bootstrap, running.probe.topic, [Sent(b"k", b"v", START, n % 2) for n in range(20)])
    running.run()
    if "key" in change:
        running.probe = Stream(topic=running.probe.topic, **change)
    else:
        running = replace(running, **change)
    send(running.bootstrap, running.probe.topic, [Sent(b"k", b"v", START, n % 2) for n in range(20)])
    with pytest.raises(StreamingQueryException, match=named):
        running.run()


def test_any_downstream_transformation_and_sink_work(pipeline: Callable[..., Pipeline]) -> None:
    running = pipeline()
    for topic in (running.probe.topic, running.build.topic):
        send(running.bootstrap, topic, [Sent(b"%d" % (n % 3), b"%d" % n, START + n) for n in range(9)])
    seen: list[Any] = []
    counts = running.joined().filter("key = binary('1')").withColumn("sum", F.expr("int(string(probe_value))"))
    query = (
        counts.writeStream.foreachBatch(lambda frame, _: seen.extend(frame.select("sum", "id").collect()))
        .option("checkpointLocation", str(running.folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sorted(row["sum"] for row in seen) == [1, 1, 1, 4, 4, 4, 7, 7, 7]
    assert len({row["id"] for row in seen}) == 9


def test_a_key_of_another_type_is_refused(pipeline: Callable[..., Pipeline]) -> None:
    with pytest.raises(balajoin.ConfigError, match=r"build\.key: is string, but probe\.key is binary"):
        pipeline(build={"key": "cast(key as string)"}).joined()
