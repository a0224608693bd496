"""Metrics of real queries on a real broker, checked against independent figures.

These are the rows sent, the paper's routing row by row, a brute-force join, and the records on the topics afterwards.
"""

import json
import random
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from balajoin import JoinSettings, Kafka, Stream
from balajoin.config.models import Config, Output, Run
from balajoin.core.blocks import ROWS, encode
from balajoin.observe.following import Reports
from balajoin.observe.metrics import Address, Exporter, JoinMetrics, follow
from balajoin.observe.metrics.exporter import executors
from balajoin.routing.rule import LEAST_SKEWED_ROWS
from balajoin.service.run import start
from kafka_data import Sent, everything, send
from routing_oracle import BalancedPartition, SpaceSaving, balance_factor, paper_hash

NODES, PARTITIONS = 4, 2
START = 1_700_000_000_000
HOUR = 3_600_000
BEFORE_MS, AFTER_MS, LATENESS_MS = 60_000, 10_000, HOUR
THRESHOLD, BALANCE, COUNTERS = 0.1, 0.2, 1024

Samples = dict[tuple[str, ...], float]


@dataclass(frozen=True)
class Streams:
    """The records of each stream in the order of sending, which is the order of the offsets."""

    bootstrap: str
    topics: dict[str, str]
    sent: dict[str, list[Sent]]

    def send(self, stream: str, records: Sequence[Sent]) -> None:
        send(self.bootstrap, self.topics[stream], records)
        self.sent[stream].extend(records)

    def rows(self, stream: str, partition: int | None = None) -> list[Sent]:
        return [r for r in self.sent[stream] if r.key is not None and partition in (None, r.partition)]


@pytest.fixture
def streams(bootstrap: str, make_topic: Callable[..., str]) -> Streams:
    topics = {stream: make_topic(stream, PARTITIONS) for stream in ("probe", "build")}
    return Streams(bootstrap, topics, {"probe": [], "build": []})


@pytest.fixture
def configured(streams: Streams, make_topic: Callable[..., str], tmp_path: Path) -> Callable[..., Config]:
    def make(policy: str, max_rows: int | None = None) -> Config:
        return Config(
            name=policy,
            kafka=Kafka(bootstrap_servers=streams.bootstrap),
            probe=Stream(topic=streams.topics["probe"]),
            build=Stream(topic=streams.topics["build"]),
            join=JoinSettings(
                before=f"{BEFORE_MS} ms",
                after=f"{AFTER_MS} ms",
                lateness=f"{LATENESS_MS} ms",
                nodes=NODES,
                policy=policy,
                skew={
                    "threshold": THRESHOLD,
                    "balance": BALANCE,
                    "measure": "rows",
                    "half_life": "1 h",
                    "lease": "1 h",
                },
                dead_letter_topic=make_topic("dead", 1),
                late_topic=make_topic("late", 1),
                control_topic=make_topic("control", 1),
                replica_topic=make_topic("replicas", 2),
                max_rows_per_batch=max_rows,
            ),
            output=Output(topic=make_topic("joined", 2), commit_topic=make_topic("commits", NODES)),
            run=Run(checkpoint=str(tmp_path / policy), cache_dir=str(tmp_path / "cache"), trigger="0 s"),
        )

    return make


def rows(count: int, seed: int, hot_share: float, dead: int = 0) -> list[Sent]:
    """Rows of equal size, and `dead` more rows without a key at random places."""
    rng = random.Random(seed)
    live = [
        Sent(
            b"hot " if rng.random() < hot_share else b"k%03d" % rng.randrange(200),
            b"value %05d" % number,
            START + number * 10,
            rng.randrange(PARTITIONS),
        )
        for number in range(count)
    ]
    for _ in range(dead):
        live.insert(rng.randrange(count), Sent(None, b"no key", START))
    return live


# --- expected figures -------------------------------------------------------------------------------------------------


@dataclass
class Truth:
    """Figures by the paper, row by row. No row expires, so the batches make no difference."""

    node_rows: Counter[tuple[str, str]]
    loads: list[list[int]]
    hot_nodes: set[int]
    """U(x) of the one hot key over all sources, without its home."""

    crossed: defaultdict[tuple[str, int, int], list[dict[str, Any]]]
    """Rows that go to another node than that of their source, by stream, source and node."""

    @classmethod
    def of(cls, streams: Streams, hashes: dict[bytes, int], skewed: bool) -> "Truth":
        truth = cls(Counter(), [], set(), defaultdict(list))
        for source in range(PARTITIONS):
            sketch, partition = SpaceSaving(COUNTERS), BalancedPartition(NODES, BALANCE)
            for row in streams.rows("probe", source):
                x = hashes[row.key or b""]
                sketch.row(x)
                hot = skewed and sketch.skewed(x, THRESHOLD, LEAST_SKEWED_ROWS)
                node = partition.row(x) if hot else paper_hash(x, 0) % NODES
                if hot:
                    assert row.key == b"hot "
                    truth.hot_nodes.add(node)
                truth._count("probe", "skewed" if hot else "home", node, row, x)
            truth.loads.append(partition.loads)
            for row in streams.rows("build", source):
                x = hashes[row.key or b""]
                truth._count("build", "build", paper_hash(x, 0) % NODES, row, x)
        truth.hot_nodes -= {paper_hash(hashes[b"hot "], 0) % NODES}
        hot_build_rows = sum(row.key == b"hot " for row in streams.rows("build"))
        for node in truth.hot_nodes:
            truth.node_rows[str(node), "replica"] = hot_build_rows
        return truth

    def _count(self, stream: str, route: str, node: int, row: Sent, hash_: int) -> None:
        self.node_rows[str(node), route] += 1
        if node != row.partition % NODES:
            crossed = self.crossed[stream, row.partition, node]
            place = {"partition": row.partition, "offset": len(crossed)}
            crossed.append({"hash": hash_, "time": row.time_ms * 1000, **place, "key": row.key, "value": row.value})

    def traffic(self, stream: str) -> int:
        """Bytes, if each source sends each node one block."""
        tables = [pa.Table.from_pylist(rows, ROWS) for (at, _, _), rows in self.crossed.items() if at == stream]
        return sum(len(encode(table)) for table in tables)

    @property
    def balance(self) -> float:
        return balance_factor([sum(loads) for loads in zip(*self.loads, strict=True)])

    def minus(self, before: "Truth") -> Counter[tuple[str, str]]:
        return Counter({at: count - before.node_rows[at] for at, count in self.node_rows.items()})


def pairs(streams: Streams) -> int:
    by_key: dict[bytes | None, list[int]] = {}
    for row in streams.rows("build"):
        by_key.setdefault(row.key, []).append(row.time_ms)
    return sum(
        row.time_ms - BEFORE_MS <= time <= row.time_ms + AFTER_MS
        for row in streams.rows("probe")
        for time in by_key.get(row.key, ())
    )


def watermark_s(rows: Sequence[Sent]) -> float:
    newest = [max(row.time_ms for row in rows if row.partition == at) for at in range(PARTITIONS)]
    return (min(newest) - LATENESS_MS) / 1000


# --- measured figures -------------------------------------------------------------------------------------------------


def scraped(exporter: Exporter, join: str) -> Samples:
    with urllib.request.urlopen(exporter.url, timeout=10) as answer:
        text = answer.read().decode()
    return {
        (sample.name, *(value for label, value in sorted(sample.labels.items()) if label != "join")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels["join"] == join
    }


def by_labels(samples: Samples, metric: str) -> dict[tuple[str, ...], float]:
    return {name[1:]: value for name, value in samples.items() if name[0] == metric and value}


def total(samples: Samples, metric: str) -> float:
    return sum(by_labels(samples, metric).values())


def test_metrics_are_the_truth_of_two_joins_and_after_a_restart(
    spark: SparkSession, streams: Streams, configured: Callable[..., Config]
) -> None:
    streams.send("build", rows(200, seed=1, hot_share=0.2, dead=3))
    streams.send("probe", rows(2000, seed=2, hot_share=0.5, dead=7))
    keys = [b"hot ", *(b"k%03d" % number for number in range(200))]
    frame = spark.createDataFrame([(bytearray(key),) for key in keys], "key binary")
    hashes = {bytes(key): hash_ for key, hash_ in frame.select("key", F.xxhash64("key")).collect()}

    spreading, hashing = configured("bala-join"), configured("hash", max_rows=700)
    metrics = [JoinMetrics.of(config, executors) for config in (spreading, hashing)]
    lags: list[tuple[float, float]] = []
    with Exporter(Address("127.0.0.1", 0), metrics) as exporter:

        def note_lag(_: object) -> None:
            seen = scraped(exporter, "hash")
            lags.append((seen["balajoin_input_lag_records", "probe"], seen["balajoin_input_rows_total", "probe"]))

        queries = [start(spark, config) for config in (spreading, hashing)]
        with follow(queries[0], metrics[0]), follow(queries[1], metrics[1], note_lag):
            for query in queries:
                query.processAllAvailable()
                query.stop()
        spread, hashed = scraped(exporter, "bala-join"), scraped(exporter, "hash")

    first = Truth.of(streams, hashes, skewed=True)
    unskewed = Truth.of(streams, hashes, skewed=False)
    assert len(first.hot_nodes) >= 2
    for found, truth in ((spread, first), (hashed, unskewed)):
        assert by_labels(found, "balajoin_input_rows_total") == {("probe",): 2007, ("build",): 203}
        assert by_labels(found, "balajoin_dead_letters_total") == {("probe",): 7, ("build",): 3}
        assert by_labels(found, "balajoin_late_rows_total") == {}
        assert by_labels(found, "balajoin_node_rows_total") == {
            at: count for at, count in truth.node_rows.items() if count
        }
        assert total(found, "balajoin_output_rows_total") == pairs(streams)
        assert total(found, "balajoin_state_rows") == sum(truth.node_rows.values())
        traffic = by_labels(found, "balajoin_traffic_bytes_total")
        for stream in ("probe", "build"):
            one_block = truth.traffic(stream)
            most = 1.1 if found is spread else 2  # more batches have more blocks, and smaller ones compress less
            assert 0.9 * one_block <= traffic[stream,] <= most * one_block
            assert found["balajoin_watermark_timestamp_seconds", stream] == watermark_s(streams.rows(stream))
        assert found["balajoin_executors",] == 1
    assert len(everything(streams.bootstrap, spreading.output.topic)) == pairs(streams)

    assert spread["balajoin_balance_ratio",] == pytest.approx(first.balance)
    for source, loads in enumerate(first.loads):
        assert spread["balajoin_source_balance_ratio", str(source)] == pytest.approx(balance_factor(loads))
        assert balance_factor(loads) <= BALANCE
    assert ("balajoin_balance_ratio",) not in hashed
    hot = f"{hashes[b'hot '] & (1 << 64) - 1:016x}"
    assert by_labels(spread, "balajoin_hot_key_nodes") == {(hot,): len(first.hot_nodes) + 1}
    share = sum(row.key == b"hot " for row in streams.rows("probe")) / 2000
    assert spread["balajoin_hot_key_share_ratio", hot] == pytest.approx(share)

    signals = [json.loads(message.value()) for message in everything(streams.bootstrap, spreading.join.control_topic)]
    shipped = everything(streams.bootstrap, spreading.join.replica_topic)
    assert spread["balajoin_signals_total", "new"] == len(signals) > 0
    assert {signal["node"] for signal in signals} == first.hot_nodes
    traffic = by_labels(spread, "balajoin_traffic_bytes_total")
    assert traffic["replica",] == sum(len(message.value() or b"") for message in shipped)
    control = everything(streams.bootstrap, spreading.join.control_topic)
    assert traffic["signal",] == sum(len(message.value()) for message in control)
    assert spread["balajoin_pulls_total",] == len(first.hot_nodes)
    assert spread["balajoin_pulled_rows_total",] == sum(
        count for (_, route), count in first.node_rows.items() if route == "replica"
    )
    # The signal and its answer are sent in the batch of the rows, and the next batch has the build rows.
    assert spread["balajoin_pull_wait_batches_count",] == spread["balajoin_pull_wait_seconds_count",]
    assert spread["balajoin_pull_wait_batches_count",] == len(first.hot_nodes)
    assert spread["balajoin_pull_wait_batches_sum",] == len(first.hot_nodes)
    assert total(spread, "balajoin_pins") == 0
    assert total(spread, "balajoin_leases") == len(first.hot_nodes)
    for kind in ("signal", "replica"):
        assert (kind,) not in by_labels(hashed, "balajoin_traffic_bytes_total")
    assert len(lags) >= 3
    assert all(lag + read == 2007 for lag, read in lags)
    assert lags[-1][0] == 0

    # A new process has new metrics. Counters count what this process did; gauges show all state.
    again = JoinMetrics.of(spreading, executors)
    streams.send("probe", rows(300, seed=3, hot_share=0.5))
    query = start(spark, spreading)
    reports = Reports(query)

    def settled() -> Samples:
        query.processAllAvailable()
        for report in reports.new():
            again(report)
        return scraped(exporter, "bala-join")

    with Exporter(Address("127.0.0.1", 0), [again]) as exporter:
        restarted = settled()
        for stream in ("probe", "build"):
            far_ahead = [Sent(b"k000", b"", START + 5 * HOUR, partition) for partition in range(PARTITIONS)]
            send(streams.bootstrap, streams.topics[stream], far_ahead)
        settled()
        send(streams.bootstrap, streams.topics["probe"], [Sent(b"k001", b"", START, 1)] * 5)
        send(streams.bootstrap, streams.topics["build"], [Sent(b"k001", b"", START, 1)] * 2)
        late = settled()
        query.stop()
    second = Truth.of(streams, hashes, skewed=True)
    assert by_labels(restarted, "balajoin_input_rows_total") == {("probe",): 300}
    assert by_labels(restarted, "balajoin_node_rows_total") == {
        at: count for at, count in second.minus(first).items() if count
    }
    assert restarted["balajoin_balance_ratio",] == pytest.approx(second.balance)
    assert total(restarted, "balajoin_state_rows") == sum(second.node_rows.values())
    assert restarted["balajoin_watermark_timestamp_seconds", "build"] == watermark_s(streams.rows("build"))
    assert by_labels(late, "balajoin_late_rows_total") == {("probe",): 5, ("build",): 2}
    assert len(everything(streams.bootstrap, spreading.join.late_topic)) == 7
    for stream in ("probe", "build"):
        assert late["balajoin_watermark_timestamp_seconds", stream] == (START + 4 * HOUR) / 1000
