"""The parts of `make geo` that need no namespace: loads, and what is read from Spark's event log."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

from geo import event_log, measuring, outcome, report
from geo.loads import BUILD_KEYS, PROBE_KEYS, Load, times

ROWS = {7: 100, 8: 60}


@pytest.mark.parametrize("probe_keys", PROBE_KEYS)
@pytest.mark.parametrize("build_keys", BUILD_KEYS)
def test_the_expected_results_are_the_pairs_by_definition(probe_keys: Any, build_keys: Any) -> None:
    load = Load(probe_keys, build_keys, 300, 60, 2)
    probe = zip(load.keys_of("probe").tolist(), times(300).tolist(), strict=True)
    build = list(zip(load.keys_of("build").tolist(), times(60).tolist(), strict=True))
    pairs = [1 for key, at in probe for other, then in build if key == other and abs(at - then) <= load.interval_ms]
    assert load.expected_results == len(pairs)


def test_skewed_keys_on_both_sides_give_a_bounded_number_of_results() -> None:
    load = Load("zipf-1.5", "zipf", 20_000, 2_000, 4)
    assert 20_000 < load.expected_results <= 40_000


def test_stages_and_places_are_read_from_an_event_log(tmp_path: Path) -> None:
    hosts = {7: ("a", "b"), 8: ("b", "b")}
    events = [
        event for batch, began in ((7, 10_000), (8, 20_000)) for event in batch_events(batch, began, hosts[batch])
    ]
    (tmp_path / "app").write_text("".join(f"{json.dumps(event)}\n" for event in events))
    found = event_log.batches(tmp_path, ROWS)
    assert [(batch.number, batch.rows_in, batch.duration_ms) for batch in found] == [(7, 100, 6000), (8, 60, 6000)]
    (stage,), driver_s, phases = measuring.stage_times(found, ["join"])
    assert (stage.seconds, stage.longest_task_s, stage.waited_s, stage.fetched_bytes) == (4.0, 3.0, 0.5, 10)
    assert driver_s == 2.0
    assert phases == {"triggerExecution": 6.0, "addBatch": 5.0}
    assert measuring.placement(found) == measuring.Placement(moved=1, doubled=1)
    assert measuring.rows_per_s(found, 1) == 6.0
    last = replace(found[1], number=9, began_ms=30_000, rows_in=20)
    assert measuring.rows_per_s([*found, last], 1) == 6.0


def test_a_last_batch_that_is_not_half_full_does_not_count() -> None:
    assert measuring.logged_rows_per_s([(100, 9.0), (100, 2.0), (100, 3.0), (40, 9.0)], 1) == 40.0
    assert measuring.logged_rows_per_s([(100, 9.0), (100, 2.0), (60, 2.0)], 1) == 40.0
    assert measuring.logged_rows_per_s([(100, 9.0)], 1) is None


def batch_events(batch: int, began_ms: int, hosts: tuple[str, ...]) -> list[dict[str, Any]]:
    info = {"Stage ID": batch, "Stage Attempt ID": 0, "Submission Time": began_ms + 1000}
    ended = {**info, "Completion Time": began_ms + 5000}
    tasks = [
        {
            "Event": "SparkListenerTaskEnd",
            "Stage ID": batch,
            "Stage Attempt ID": 0,
            "Task End Reason": {"Reason": "Success"},
            "Task Info": {"Index": at, "Partition ID": at, "Host": host, "Launch Time": began_ms + 1500},
            "Task Metrics": {
                "Executor Run Time": 3000,
                "Executor CPU Time": 1_000_000,
                "Shuffle Read Metrics": {"Remote Bytes Read": 5},
            },
        }
        for at, host in enumerate(hosts)
    ]
    progress = {
        "batchId": batch,
        "timestamp": f"1970-01-01T00:00:{began_ms // 1000:02d}.000Z",
        "durationMs": {"triggerExecution": 6000, "addBatch": 5000},
    }
    return [
        {"Event": "SparkListenerJobStart", "Stage IDs": [batch], "Properties": {"streaming.sql.batchId": str(batch)}},
        {"Event": "SparkListenerStageSubmitted", "Stage Info": info},
        *tasks,
        {"Event": "SparkListenerStageCompleted", "Stage Info": ended},
        {"Event": "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent", "progress": progress},
    ]


def test_what_runs_have_shown_is_read_again_drawn_and_kept_for_the_model(tmp_path: Path) -> None:
    contenders = (("bala-join by rows", 1), ("bala-join by rows", 2), ("bala-join", 2), ("Flink, RocksDB", 2))
    shown = [an_outcome(contender, nodes) for contender, nodes in contenders]
    for number, one in enumerate(shown):
        outcome.write(tmp_path / f"{number}.json", [one], {"machine": "here", "failed": []})
    found, machines = report.read(sorted(tmp_path.glob("*.json")))
    assert found == shown
    assert machines == ["here"]
    run = {"mbit": 100, "policy": "bala-join", "zipf": 1.25, "probe": 60, "build": 10, "keys": 10, "rows_per_s": 9.5}
    assert report.measurements(found) == [{"nodes": 1, **run}, {"nodes": 2, **run}]
    report.draw(found, "zipf-1.25", ["bala-join"], tmp_path / "nodes.png")
    assert (tmp_path / "nodes.png").read_bytes().startswith(b"\x89PNG")


def an_outcome(contender: str, nodes: int) -> outcome.Outcome:
    return outcome.Outcome(
        contender=contender,
        load=Load("zipf-1.25", "uniform", 60, 10, nodes).name,
        workers=("0.35 core, 100 Mbit/s",) * nodes,
        batch_rows=10,
        warm_up="2 batches",
        rows_per_s=9.5,
        finished=True,
        results=60,
        expected=60,
        repeated=None,
        batch_s=[1.0],
        stages=[outcome.StageTime("read", 1, 1, 1, 0, 1, 10)],
        hosts=[outcome.HostUse("worker-1", 1, 0, 1, 0, 10, 10, 10, 10)],
        node_rows=[30, 30],
        placement=outcome.Placement(0, 0),
    )
