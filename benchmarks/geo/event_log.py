"""Reads Spark's event log: which stages a batch had, how long they took, where tasks ran, and what they fetched.

The log also holds how long each phase of a batch took, so that balajoin and Spark's own join are measured alike.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

_BATCH = "streaming.sql.batchId"


@dataclass(frozen=True)
class Task:
    partition: int
    host: str
    run_ms: int
    jvm_cpu_ms: int
    """CPU time of the task's thread in the JVM. Python workers are other processes."""
    waited_ms: int
    """From the start of the stage to the start of the task: for a free core, or for the host that it prefers."""
    fetched_bytes: int
    """Shuffled bytes that came from other hosts, as Spark counts them."""


@dataclass
class Stage:
    number: int
    batch: int
    began_ms: int = 0
    ended_ms: int = 0
    tasks: list[Task] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return (self.ended_ms - self.began_ms) / 1000


@dataclass(frozen=True)
class Batch:
    number: int
    began_ms: int
    duration_ms: int
    rows_in: int
    phases_ms: Mapping[str, int]
    stages: tuple[Stage, ...]
    """In the order of their work. A stage that Spark repeated comes once more."""

    @property
    def ended_ms(self) -> int:
        return self.began_ms + self.duration_ms


def batches(folder: Path, rows_in: Mapping[int, int]) -> list[Batch]:
    """The batches that had rows: `rows_in` has their number by batch, which the log lacks.

    `folder` holds the log of one application.
    """
    stages: dict[int, dict[tuple[int, int], Stage]] = defaultdict(dict)
    batch_of: dict[int, int] = {}
    progress: dict[int, Any] = {}
    for event in _events(folder):
        kind = event["Event"].rpartition(".")[2]
        if kind == "SparkListenerJobStart" and _BATCH in event.get("Properties", {}):
            for number in event["Stage IDs"]:
                batch_of[number] = int(event["Properties"][_BATCH])
        elif kind in ("SparkListenerStageSubmitted", "SparkListenerStageCompleted"):
            _note_stage(event["Stage Info"], batch_of, stages)
        elif kind == "SparkListenerTaskEnd" and event.get("Task Metrics"):
            _note_task(event, batch_of, stages)
        elif kind == "StreamingQueryListener$QueryProgressEvent":
            told = event["progress"]
            told = json.loads(told) if isinstance(told, str) else told
            progress[told["batchId"]] = told
    return [
        _batch(told, rows_in[number], sorted(stages[number].values(), key=lambda stage: stage.began_ms))
        for number, told in sorted(progress.items())
        if rows_in.get(number) and "addBatch" in told["durationMs"]
    ]


def _batch(told: Mapping[str, Any], rows_in: int, stages: Iterable[Stage]) -> Batch:
    return Batch(
        number=told["batchId"],
        began_ms=round(datetime.fromisoformat(told["timestamp"].replace("Z", "+00:00")).timestamp() * 1000),
        duration_ms=told["durationMs"]["triggerExecution"],
        rows_in=rows_in,
        phases_ms=told["durationMs"],
        stages=tuple(stage for stage in stages if stage.ended_ms),
    )


def _note_stage(
    info: Mapping[str, Any], batch_of: Mapping[int, int], stages: dict[int, dict[tuple[int, int], Stage]]
) -> None:
    number = info["Stage ID"]
    if number in batch_of:
        stage = stages[batch_of[number]].setdefault(
            (number, info["Stage Attempt ID"]), Stage(number, batch_of[number], info.get("Submission Time", 0))
        )
        stage.ended_ms = info.get("Completion Time", 0)


def _note_task(
    event: Mapping[str, Any], batch_of: Mapping[int, int], stages: dict[int, dict[tuple[int, int], Stage]]
) -> None:
    number = event["Stage ID"]
    stage = stages.get(batch_of.get(number, -1), {}).get((number, event["Stage Attempt ID"]))
    if stage is None or event["Task End Reason"]["Reason"] != "Success":
        return
    info, metrics = event["Task Info"], event["Task Metrics"]
    stage.tasks.append(
        Task(
            partition=info.get("Partition ID", info["Index"]),
            host=info["Host"],
            run_ms=metrics["Executor Run Time"],
            jvm_cpu_ms=metrics["Executor CPU Time"] // 1_000_000,
            waited_ms=info["Launch Time"] - stage.began_ms,
            fetched_bytes=metrics["Shuffle Read Metrics"]["Remote Bytes Read"],
        )
    )


def _events(folder: Path) -> Iterator[dict[str, Any]]:
    for file in sorted(folder.rglob("*")):
        if file.is_file() and not file.name.startswith((".", "appstatus")):
            with file.open(errors="replace") as lines:
                for line in lines:
                    if line.endswith("\n"):
                        yield json.loads(line)
