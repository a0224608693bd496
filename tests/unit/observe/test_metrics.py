"""Metrics without a query: the sums of reports, the served text, and the same table in the documentation."""

import http.client
import re
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from balajoin import ConfigError, JoinSettings, Kafka, SetupError, Stream
from balajoin.compute.statistics import NodeStatistics
from balajoin.config.models import Config, Metrics, Output, Run
from balajoin.observe.following import Reports
from balajoin.observe.metrics import Address, Exporter, JoinMetrics, follow
from balajoin.observe.metrics.catalogue import CATALOGUE, HOT_KEYS
from balajoin.observe.metrics.exporter import served
from balajoin.observe.report import BatchReport
from balajoin.routing.policies import HotKey
from balajoin.routing.statistics import SourceStatistics
from debian_tools import tool
from progress_data import FakeQuery, ended, read

ANYWHERE = Address("127.0.0.1", 0)
REPOSITORY = Path(__file__).parents[3]
NODES = 2


SETTINGS = JoinSettings(
    before="1 min",
    after="5 s",
    lateness="10 s",
    nodes=NODES,
    dead_letter_topic="dead",
    late_topic="late",
    control_topic="control",
    replica_topic="replicas",
    skew={"balance": 0.3, "measure": "rows"},
)


def join_metrics(name: str = "clicks", **more: Any) -> JoinMetrics:
    return JoinMetrics(name, Stream(topic="views"), Stream(topic=more.pop("build", "prices")), SETTINGS, **more)


def scraped(exporter: Exporter) -> str:
    with urllib.request.urlopen(exporter.url, timeout=10) as answer:
        return str(answer.read().decode())


Samples = dict[tuple[str, ...], float]


def samples(text: str, *left_out: str) -> Samples:
    """The samples by metric name and label values, which are in the order of the label names."""
    return {
        (sample.name, *(value for label, value in sorted(sample.labels.items()) if label not in left_out)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def told(metrics: JoinMetrics, *left_out: str) -> Samples:
    with Exporter(ANYWHERE, [metrics]) as exporter:
        return samples(scraped(exporter), *left_out)


def after(*batches: dict[str, Any], **more: Any) -> Samples:
    metrics = join_metrics(**more)
    for progress in batches:
        metrics(BatchReport.of(progress))
    return told(metrics, "join")


HOT = HotKey(-1, 60, 0.6, (0, 1))
BUSY_BATCH = ended(
    3,
    10,
    inputs=[
        read("views", {0: 0}, {0: 30}, latest={0: 42}),
        read("prices", {0: 0}, {0: 5}),
        read("control", {0: 0}, {0: 1}),
        read("replicas", None, {0: 0}),
    ],
    entered={"probe": (28, 2), "build": (4, 1)},
    rows=(20, 12),
    probe_bytes=1000,
    build_bytes=100,
    sources=[
        SourceStatistics(0, [6, 4], loads=[100, 80], signals=2, signal_bytes=300, fetched_bytes=44, hot_keys=[HOT]),
        SourceStatistics(1, [1, 0], loads=[60, 80], signals=1, signal_bytes=150, fetched_bytes=6),
    ],
    nodes=[
        NodeStatistics(
            0,
            probe_rows=17,
            build_rows=3,
            pairs=9,
            late_rows=3,
            late_build_rows=1,
            stored_rows=50,
            stored_bytes=5000,
            pulls=1,
            pulled_rows=4,
            forwarded_rows=2,
            replica_bytes=700,
            leases=1,
            busy_us=250_000,
            watermarks={"probe": 5_000_000, "build": 4_500_000},
        ),
        NodeStatistics(
            1,
            probe_rows=11,
            build_rows=1,
            replica_rows=6,
            pairs=2,
            stored_rows=30,
            stored_bytes=3000,
            alone_rows=3,
            waiting_rows=12,
            pins=1,
            repeated_signals=1,
            signal_bytes=80,
            foreign_records=2,
            stale_records=1,
            delayed_shipments=1,
            incomplete_pulls=1,
            pull_waits=[0, 0, 3],
            watermarks={"probe": 5_000_000, "build": 4_500_000},
        ),
    ],
    durations_ms={"addBatch": 1200, "walCommit": 100, "triggerExecution": 1500},
)


def test_a_batch_becomes_its_metrics() -> None:
    found = after(ended(1, 3), BUSY_BATCH)
    expected = {
        ("balajoin_input_rows_total", "probe"): 30,
        ("balajoin_input_rows_total", "build"): 5,
        ("balajoin_dead_letters_total", "probe"): 2,
        ("balajoin_dead_letters_total", "build"): 1,
        ("balajoin_late_rows_total", "probe"): 2,
        ("balajoin_late_rows_total", "build"): 1,
        ("balajoin_node_rows_total", "0", "home"): 10,
        ("balajoin_node_rows_total", "0", "skewed"): 7,
        ("balajoin_node_rows_total", "0", "build"): 3,
        ("balajoin_node_rows_total", "0", "replica"): 0,
        ("balajoin_node_rows_total", "1", "home"): 7,
        ("balajoin_node_rows_total", "1", "skewed"): 4,
        ("balajoin_node_rows_total", "1", "build"): 1,
        ("balajoin_node_rows_total", "1", "replica"): 6,
        ("balajoin_output_rows_total", "0"): 9,
        ("balajoin_output_rows_total", "1"): 5,
        ("balajoin_waiting_rows", "1"): 12,
        ("balajoin_node_busy_seconds_total", "0"): 0.25,
        ("balajoin_traffic_bytes_total", "probe"): 1000,
        ("balajoin_traffic_bytes_total", "build"): 100,
        ("balajoin_traffic_bytes_total", "replica"): 700,
        ("balajoin_traffic_bytes_total", "signal"): 530,
        ("balajoin_traffic_bytes_total", "fetched"): 50,
        ("balajoin_balance_ratio",): 0.0,  # 160 and 160
        ("balajoin_source_balance_ratio", "0"): 0.2,
        ("balajoin_source_balance_ratio", "1"): 0.25,
        ("balajoin_balance_limit_ratio",): 0.3,
        ("balajoin_work_excess_ratio",): 29 / 24.5 - 1,  # 20 rows and 9 pairs, 18 rows and 2 pairs
        ("balajoin_hot_keys",): 1,
        ("balajoin_hot_key_share_ratio", "f" * 16): 0.6,
        ("balajoin_hot_key_nodes", "f" * 16): 2,
        ("balajoin_signals_total", "new"): 3,
        ("balajoin_signals_total", "repeated"): 1,
        ("balajoin_pulls_total",): 1,
        ("balajoin_pulled_rows_total",): 4,
        ("balajoin_forwarded_rows_total",): 2,
        ("balajoin_pull_wait_batches_bucket", "1.0"): 0,
        ("balajoin_pull_wait_batches_bucket", "2.0"): 3,
        ("balajoin_pull_wait_batches_count",): 3,
        ("balajoin_pull_wait_batches_sum",): 6,
        # from the end of batch 1, at 3.1 s, to that of batch 3, at 11.5 s
        ("balajoin_pull_wait_seconds_bucket", "8.0"): 0,
        ("balajoin_pull_wait_seconds_bucket", "13.0"): 3,
        ("balajoin_pull_wait_seconds_count",): 3,
        ("balajoin_leases", "0"): 1,
        ("balajoin_pins", "1"): 1,
        ("balajoin_skipped_records_total", "foreign"): 2,
        ("balajoin_skipped_records_total", "stale"): 1,
        ("balajoin_delayed_shipments_total",): 1,
        ("balajoin_incomplete_pulls_total",): 1,
        ("balajoin_state_rows", "0"): 50,
        ("balajoin_state_bytes", "1"): 3000,
        ("balajoin_watermark_timestamp_seconds", "probe"): 5,
        ("balajoin_watermark_timestamp_seconds", "build"): 4.5,
        ("balajoin_input_lag_records", "probe"): 12,
        ("balajoin_input_lag_records", "replica"): 0,
        ("balajoin_batch_duration_seconds_count",): 2,
        ("balajoin_batch_duration_seconds_bucket", "0.1"): 1,
        ("balajoin_batch_duration_seconds_sum",): 1.6,
        ("balajoin_batch_phase_seconds_total", "walCommit"): 0.1,
        ("balajoin_nodes",): 2,
        ("balajoin_retention_seconds",): 75,
    }
    assert {name: found.get(name) for name in expected} == pytest.approx(expected)


def test_before_the_first_batch_counters_are_zero_and_gauges_say_only_what_is_known() -> None:
    names = {name[0]: value for name, value in after().items()}
    of_the_settings = {
        "balajoin_build_info",
        "balajoin_join_info",
        "balajoin_start_timestamp_seconds",
        "balajoin_nodes",
        "balajoin_balance_limit_ratio",
        "balajoin_skew_threshold_ratio",
        "balajoin_retention_seconds",
    }
    assert all(value == 0 for name, value in names.items() if name not in of_the_settings)
    assert {metric.name for metric in CATALOGUE if metric.kind == "gauge"} & names.keys() == of_the_settings


def test_what_a_silent_source_sent_still_counts_for_the_balance_and_the_hot_keys() -> None:
    def batch(number: int, *sources: SourceStatistics | None) -> dict[str, Any]:
        return ended(number, rows=(1, 1), sources=sources)

    first = SourceStatistics(0, [1, 0], loads=[100, 50], hot_keys=[HOT])
    found = after(batch(0, first), batch(1, None, SourceStatistics(1, [1, 0], loads=[0, 50])))
    assert found["balajoin_balance_ratio",] == 0
    assert found["balajoin_source_balance_ratio", "0"] == 0.5
    assert found["balajoin_source_balance_ratio", "1"] == 1
    assert found["balajoin_hot_key_nodes", "f" * 16] == 2


def test_only_the_most_frequent_keys_are_named_and_those_of_before_are_gone() -> None:
    def batch(number: int, first_hash: int) -> dict[str, Any]:
        keys = [HotKey(first_hash + at, 1000 - at, (1000 - at) / 40_000, (0,)) for at in range(30)]
        return ended(number, rows=(1, 1), sources=[SourceStatistics(0, [1, 0], hot_keys=keys)])

    found = after(batch(0, 100), batch(1, 200))
    expected = {f"{200 + at:016x}" for at in range(HOT_KEYS)}
    for metric in ("balajoin_hot_key_nodes", "balajoin_hot_key_share_ratio"):
        assert {name[1] for name in found if name[0] == metric} == expected
    assert found["balajoin_hot_keys",] == 30


def test_a_topic_joined_with_itself_has_a_lag_for_each_stream() -> None:
    inputs = [read("views", {0: 0}, {0: 9}, latest={0: 10}), read("views", {0: 0}, {0: 5}, latest={0: 10})]
    found = after(ended(0, inputs=inputs), build="views")
    assert found["balajoin_input_lag_records", "probe"] == 1
    assert found["balajoin_input_lag_records", "build"] == 5


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 10**6)), min_size=1))
def test_counters_add_up_and_gauges_are_of_the_last_batch(batches: list[tuple[int, int, int]]) -> None:
    metrics = join_metrics()
    for number, (pairs, stored, duration_ms) in enumerate(batches):
        nodes = [NodeStatistics(0, pairs=pairs, stored_rows=stored, pull_waits=[0, pairs])]
        progress = ended(number, nodes=nodes, durations_ms={"addBatch": 1, "triggerExecution": duration_ms})
        metrics(BatchReport.of(progress))
    series = {series.metric.name: series for series in metrics.series()}
    total = sum(pairs for pairs, _, _ in batches)
    assert series["balajoin_output_rows_total"].values["0",] == total
    assert series["balajoin_state_rows"].values == {("0",): batches[-1][1]}
    histogram = series["balajoin_batch_duration_seconds"].histogram
    assert histogram is not None
    bounds = series["balajoin_batch_duration_seconds"].metric.buckets
    expected = [sum(ms / 1000 <= bound for _, _, ms in batches) for bound in bounds]
    assert [sum(histogram.counts[: at + 1]) for at in range(len(bounds))] == expected
    assert sum(histogram.counts) == len(batches)
    assert histogram.sum == pytest.approx(sum(ms for _, _, ms in batches) / 1000)
    waits = series["balajoin_pull_wait_batches"].histogram
    assert waits is not None
    assert waits.counts[0] == sum(waits.counts) == total


# --- serving ----------------------------------------------------------------------------------------------------------


def test_one_address_serves_several_joins_and_names_each_metric_once() -> None:
    joins = [join_metrics("one"), join_metrics("two")]
    joins[1](BatchReport.of(BUSY_BATCH))
    with Exporter(ANYWHERE, joins) as exporter:
        text = scraped(exporter)
    found = samples(text)
    assert found["balajoin_input_rows_total", "one", "probe"] == 0
    assert found["balajoin_input_rows_total", "two", "probe"] == 30
    assert ("balajoin_balance_ratio", "one") not in found
    types = re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)
    assert len(types) == len(set(types))


def test_exporters_of_one_process_do_not_see_each_other() -> None:
    with Exporter(ANYWHERE, [join_metrics("one")]) as one, Exporter(ANYWHERE, [join_metrics("two")]) as two:
        assert one.address.port != two.address.port
        assert 'join="two"' not in scraped(one)
        assert 'join="one"' not in scraped(two)


def _status(exporter: Exporter, host: str | None) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", exporter.address.port, timeout=10)
    connection.putrequest("GET", "/metrics", skip_host=True)
    if host is not None:
        connection.putheader("Host", host)
    connection.endheaders()
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def test_local_metrics_answer_to_no_other_name() -> None:
    """Otherwise a web site whose name resolves to this machine could read the metrics."""
    for address in (ANYWHERE, Address("localhost", 0)):
        with Exporter(address, [join_metrics()]) as exporter:
            port = exporter.address.port
            for foreign in (
                "evil.example",
                f"evil.example:{port}",
                "localhost.evil.example",
                "127.0.0.1.nip.io",
                "[::1",
            ):
                assert _status(exporter, foreign) == 421
            assert _status(exporter, None) == 421
            for own in ("localhost", f"LOCALHOST:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"):
                assert _status(exporter, own) == 200


def test_metrics_for_the_network_answer_to_any_name() -> None:
    """Prometheus asks by a service's name, as in docker-compose.yml, and balajoin cannot know that name."""
    with Exporter(Address("0.0.0.0", 0), [join_metrics()]) as exporter:
        for name in ("join:9464", "balajoin.example", "10.0.0.7:9464"):
            assert _status(exporter, name) == 200


def test_an_address_that_is_taken_is_named_and_a_closed_one_is_free_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = Address("127.0.0.1", other.getsockname()[1])
        with pytest.raises(SetupError, match=rf"metrics.address {taken} cannot be listened on: .*in use"):
            Exporter(taken, [])
    with Exporter(ANYWHERE, []) as first:
        again = first.address
    Exporter(again, []).close()


def test_a_service_serves_them_only_where_its_settings_say() -> None:
    def config(**metrics: str) -> Config:
        return Config(
            name="served",
            kafka=Kafka(bootstrap_servers="nowhere:1"),
            probe=Stream(topic="views"),
            build=Stream(topic="prices"),
            join=SETTINGS,
            output=Output(topic="joined"),
            run=Run(checkpoint="checkpoint"),
            metrics=Metrics(**metrics),
        )

    with served(config()) as nothing:
        assert nothing == []
    with served(config(address="localhost:0")) as (metrics,):
        assert metrics.name == "served"
    with pytest.raises(ConfigError, match=r"^address: must be a host and a port"):
        Metrics(address="9464")


def test_a_query_is_followed_to_its_last_batch() -> None:
    query, metrics = FakeQuery(), join_metrics()
    with follow(query, metrics):
        query.recentProgress.append(BUSY_BATCH)
    assert told(metrics)["balajoin_pulls_total", "clicks"] == 1


def test_a_query_that_idles_is_known_to_be_alive() -> None:
    query, metrics = FakeQuery(), join_metrics()
    reports = Reports(query)
    query.recentProgress.append(ended(0, 5))
    reports.tell([metrics])
    query.recentProgress.append(ended(1, 40, durations_ms={"triggerExecution": 3}))
    reports.tell([metrics])
    reports.tell([metrics])
    found = told(metrics, "join")
    idled_s = found["balajoin_last_progress_timestamp_seconds",] - found["balajoin_last_batch_timestamp_seconds",]
    assert idled_s == pytest.approx(34.9)
    assert found["balajoin_batch_duration_seconds_count",] == 1


def test_promtool_finds_nothing_to_complain_about() -> None:
    metrics = join_metrics(executors=lambda: 3)
    metrics(BatchReport.of(ended(1)))
    metrics(BatchReport.of(BUSY_BATCH))
    with Exporter(ANYWHERE, [metrics, join_metrics("another")]) as exporter:
        text = scraped(exporter)
    assert {metric.name for metric in CATALOGUE} == set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    for metric in CATALOGUE:
        assert re.search(rf"^{metric.name}(_bucket)?{{", text, re.MULTILINE), f"{metric.name} has no sample"
    checked = subprocess.run([tool("promtool"), "check", "metrics"], input=text, capture_output=True, text=True)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def documented() -> Iterator[tuple[str, ...]]:
    for line in (REPOSITORY / "docs" / "metrics.md").read_text().splitlines():
        if line.startswith("| `balajoin_"):
            yield tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1])


def test_the_documentation_has_every_metric_with_its_type_labels_and_meaning() -> None:
    assert list(documented()) == [
        (
            f"`{metric.name}`",
            metric.kind,
            ", ".join(f"`{label}`" for label in metric.labels),
            metric.help.replace("|", r"\|"),
        )
        for metric in CATALOGUE
    ]
