"""Watches a running query from outside: its batches by its log, its hosts by the kernel's counters."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from geo.event_log import Batch, Stage
from geo.hosts import Hosts, Use
from geo.outcome import HostUse, Placement, StageTime

_BATCH = re.compile(r"batch=(\d+) rows_in=(\d+) rows_out=(\d+) duration_ms=(\d+)")
_LAST_RESULTS_WITHIN_S = 60
_POLL_S = 0.3

Uses = Mapping[str, Use]
Say = Callable[[str], None]


@dataclass
class Watched:
    """Counters at the start, after the first batches, and at the end."""

    start: Uses
    warm: Uses
    end: Uses
    finished: bool
    first_result_s: float | None = None


def uses(hosts: Hosts) -> Uses:
    return {host.name: host.use() for host in hosts.all}


@dataclass(frozen=True)
class Goal:
    rows: int
    results: int
    warm_up: int
    """Batches that are not counted."""
    limit_s: float


class Query(Protocol):
    """A process, or one that is started again whenever it ends."""

    @property
    def returncode(self) -> int | None: ...


def watch(
    query: Query, log: Path, hosts: Hosts, goal: Goal, say: Say, at_batch: Callable[[int], None] | None = None
) -> Watched:
    """Returns when all rows are joined, or the time is over. `at_batch` is called with the number of ended batches."""
    began = time.monotonic()
    watched = Watched(uses(hosts), {}, {}, finished=False)
    seen = 0
    rows_in, rows_out = dict[int, int](), dict[int, int]()  # by batch: one that is repeated counts once
    rows_done_at: float | None = None
    while time.monotonic() - began < goal.limit_s:
        if query.returncode is not None:
            raise RuntimeError(f"the query ended: {log.read_text(errors='replace')[-3000:]}")
        found = _BATCH.findall(log.read_text(errors="replace"))
        for number, taken, made, duration_ms in found[seen:]:
            seen += 1
            was_done = sum(rows_in.values()) >= goal.rows
            rows_in[int(number)], rows_out[int(number)] = int(taken), int(made)
            if int(made) and watched.first_result_s is None:
                watched.first_result_s = round(time.monotonic() - began, 1)
            rows = sum(rows_in.values())
            say(f"batch {number}: {int(taken):,} rows in {int(duration_ms) / 1000:.1f} s, {rows:,} of {goal.rows:,}")
            if seen == goal.warm_up:
                watched.warm = uses(hosts)
            if not was_done:  # later batches only bring the last results
                watched.end = uses(hosts)
            if at_batch:
                at_batch(seen)
        if sum(rows_in.values()) >= goal.rows:
            rows_done_at = rows_done_at or time.monotonic()
            if sum(rows_out.values()) >= goal.results or time.monotonic() - rows_done_at > _LAST_RESULTS_WITHIN_S:
                watched.finished = True
                break
        time.sleep(_POLL_S)
    watched.end = watched.end if watched.finished else uses(hosts)
    watched.warm = watched.warm or watched.start
    return watched


def host_uses(watched: Watched) -> list[HostUse]:
    made = []
    for name, end in watched.end.items():
        warm, whole = end - watched.warm[name], end - watched.start[name]
        made.append(
            HostUse(
                name=name,
                cpu_s=round(warm.cpu.used_s, 2),
                throttled_s=round(warm.cpu.throttled_s, 2),
                jvm_cpu_s=round(warm.jvm_s, 2),
                python_cpu_s=round(warm.python_s, 2),
                sent_bytes=warm.link.sent,
                received_bytes=warm.link.received,
                all_sent_bytes=whole.link.sent,
                all_received_bytes=whole.link.received,
            )
        )
    return made


def between_workers(hosts: Sequence[HostUse]) -> int:
    """Bytes that workers sent each other.

    All that they sent, less what the broker and the driver received. What these two sent each other is left out: it is
    a few requests a batch.
    """
    sent = sum(host.all_sent_bytes for host in hosts if host.name.startswith("worker"))
    return sent - sum(host.all_received_bytes for host in hosts if not host.name.startswith("worker"))


def rows_per_s(batches: Sequence[Batch], warm_up: int) -> float | None:
    """Without a last batch that is not half full: it has a whole batch's fixed cost."""
    counted = [batch for batch in batches[warm_up:] if batch.rows_in]
    if warm_up == 0 or not counted:
        return None
    if counted[-1].rows_in < counted[0].rows_in / 2:
        counted.pop()
    elapsed_ms = counted[-1].ended_ms - batches[warm_up - 1].ended_ms
    return round(sum(batch.rows_in for batch in counted) / elapsed_ms * 1000, 1)


def logged(log: Path) -> list[tuple[int, float]]:
    """Rows and seconds of each batch in a log."""
    found = _BATCH.findall(log.read_text(errors="replace"))
    return [(int(rows_in), int(duration_ms) / 1000) for _, rows_in, _, duration_ms in found]


def rows_by_batch(log: Path) -> dict[int, int]:
    return {int(number): int(rows_in) for number, rows_in, _, _ in _BATCH.findall(log.read_text(errors="replace"))}


def logged_rows_per_s(batches: Sequence[tuple[int, float]], warm_up: int) -> float | None:
    """As `rows_per_s`."""
    counted = [(rows, seconds) for rows, seconds in batches[warm_up:] if rows]
    if not counted:
        return None
    if counted[-1][0] < counted[0][0] / 2:
        counted.pop()
    rows, seconds = (sum(column) for column in zip(*counted, strict=True))
    return round(rows / seconds, 1) if seconds else None


def stage_times(batches: Sequence[Batch], names: Sequence[str]) -> tuple[list[StageTime], float, dict[str, float]]:
    """Mean seconds a batch: by stage, of the driver alone, and by Spark's phases. Batches have the same stages."""
    whole = [batch for batch in batches if len(batch.stages) == len(names)]
    if not whole:
        return [], 0.0, {}
    stages = [_mean(name, [batch.stages[at] for batch in whole]) for at, name in enumerate(names)]
    driver = sum(batch.duration_ms / 1000 - sum(stage.seconds for stage in batch.stages) for batch in whole)
    phases = {
        name: round(sum(batch.phases_ms.get(name, 0) for batch in whole) / len(whole) / 1000, 3)
        for name in whole[0].phases_ms
    }
    return stages, round(driver / len(whole), 2), phases


def _mean(name: str, stages: Sequence[Stage]) -> StageTime:
    def mean(value: Callable[[Stage], float]) -> float:
        return round(sum(map(value, stages)) / len(stages), 2)

    return StageTime(
        name=name,
        seconds=mean(lambda stage: stage.seconds),
        mean_task_s=mean(lambda stage: sum(task.run_ms for task in stage.tasks) / max(len(stage.tasks), 1) / 1000),
        longest_task_s=mean(lambda stage: max((task.run_ms for task in stage.tasks), default=0) / 1000),
        waited_s=mean(lambda stage: max((task.waited_ms for task in stage.tasks), default=0) / 1000),
        jvm_cpu_s=mean(lambda stage: sum(task.jvm_cpu_ms for task in stage.tasks) / 1000),
        fetched_bytes=round(mean(lambda stage: sum(task.fetched_bytes for task in stage.tasks))),
    )


def placement(batches: Sequence[Batch]) -> Placement:
    places = [{task.partition: task.host for task in batch.stages[-1].tasks} for batch in batches if batch.stages]
    moved = sum(
        before.get(partition, host) != host for before, after in pairwise(places) for partition, host in after.items()
    )
    return Placement(moved, sum(len(place) - len(set(place.values())) for place in places))
