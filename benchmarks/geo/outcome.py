"""What one run has shown: a line of the table, and an entry of the JSON file."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table


@dataclass(frozen=True)
class HostUse:
    """What a host used in the warm part of a run, but for `all_…`, which are of the whole run."""

    name: str
    cpu_s: float
    throttled_s: float
    jvm_cpu_s: float
    python_cpu_s: float
    sent_bytes: int
    received_bytes: int
    all_sent_bytes: int
    all_received_bytes: int


@dataclass(frozen=True)
class StageTime:
    """One of a batch's stages, in seconds a warm batch."""

    name: str
    seconds: float
    mean_task_s: float
    longest_task_s: float
    waited_s: float
    """The longest that a task waited for a core, or for the host that it prefers."""
    jvm_cpu_s: float
    fetched_bytes: int


@dataclass(frozen=True)
class Placement:
    """How Spark placed the tasks of the last stage, one for each node, in warm batches."""

    moved: int
    """Tasks that ran on another host than that of the batch before."""
    doubled: int
    """Tasks that shared their host with another of the same stage."""


@dataclass(frozen=True)
class Outcome:
    contender: str
    load: str
    workers: tuple[str, ...]
    """Cores and bandwidth of each."""
    batch_rows: int
    warm_up: str
    """What was left out of the figures."""
    rows_per_s: float | None
    """None where all batches are almost empty."""
    finished: bool
    """Whether all rows were joined before the time limit."""
    results: int | None
    expected: int
    repeated: int | None
    """Results whose id came before; None where results have no ids."""
    batch_s: Sequence[float] = ()
    """Seconds of every batch, the first ones too."""
    stages: Sequence[StageTime] = ()
    driver_s: float | None = None
    """Seconds of a warm batch in which no stage ran."""
    phases_s: Mapping[str, float] = field(default_factory=dict)
    balance: float | None = None
    """B of the skewed rows, of the last batch."""
    node_rows: Sequence[int] = ()
    hosts: Sequence[HostUse] = ()
    traffic: Mapping[str, int] = field(default_factory=dict)
    """Bytes to other nodes by balajoin's own metric, of the whole run."""
    between_workers: int | None = None
    """Bytes that workers sent each other, by the interface counters, of the whole run."""
    placement: Placement | None = None
    fault: str = ""
    restarts: int = 0
    """How often the service ended and was started again."""
    first_result_s: float | None = None
    """From the start of the query to the end of the first batch with results."""
    pause_s: float | None = None
    """From a fault to the end of the first batch that began after it, or was repeated."""
    note: str = ""

    @property
    def busiest(self) -> float | None:
        """The busiest node's rows as a multiple of the mean."""
        return max(self.node_rows) * len(self.node_rows) / sum(self.node_rows) if sum(self.node_rows) else None

    @property
    def metric_share(self) -> float | None:
        """The rows that balajoin says it sent to other nodes, as a share of what the links carried between workers."""
        sent = sum(self.traffic.get(kind, 0) for kind in ("probe", "build", "fetched"))
        return sent / self.between_workers if self.between_workers and self.traffic else None


def table(outcomes: Iterable[Outcome], title: str) -> Table:
    shown = Table(title=title)
    for column in ("", "load", "rows/s", "batch s", "by stage", "B", "busiest", "MB/link", "metric", "CPU s", "throttled s", "results"):  # fmt: skip # noqa: E501
        shown.add_column(column, justify="left" if column in ("", "load", "by stage") else "right")
    for one in outcomes:
        shown.add_row(*_cells(one))
    return shown


def _cells(one: Outcome) -> list[str]:
    workers = [host for host in one.hosts if host.name.startswith("worker")]
    warm = sum(stage.seconds for stage in one.stages) + (one.driver_s or 0)
    stages = [f"{stage.name} {stage.seconds:.1f}" for stage in one.stages]
    found = "right" if one.results == one.expected and not one.repeated else f"{one.results} of {one.expected}"
    return [
        one.contender + (f", {one.fault}" if one.fault else ""),
        one.load,
        f"{one.rows_per_s:,.0f}" if one.rows_per_s else "–",
        f"{warm:.1f}" if one.stages else "–",
        ", ".join([*stages, f"driver {one.driver_s:.1f}"]) if one.driver_s is not None else "–",
        f"{one.balance:.2f}" if one.balance is not None else "–",
        f"{one.busiest:.2f}" if one.busiest else "–",
        _each((host.sent_bytes + host.received_bytes) / 1e6 for host in workers),
        f"{one.metric_share:.2f}" if one.metric_share else "–",
        _each(host.cpu_s for host in workers),
        _each(host.throttled_s for host in workers),
        (found if one.finished else "unfinished")
        + (f", went on after {one.pause_s:.0f} s, {one.restarts} restarts" if one.pause_s else "")
        + (f", first after {one.first_result_s:.0f} s" if one.first_result_s else "")
        + (f", {one.note}" if one.note else ""),
    ]


def _each(values: Iterable[float]) -> str:
    return " ".join(f"{value:.0f}" for value in values)


def write(path: Path, outcomes: Sequence[Outcome], about: Mapping[str, Any]) -> None:
    """Replaces the file, so that it is whole whenever the run ends."""
    content = {**about, "outcomes": [{**asdict(one), "busiest": one.busiest} for one in outcomes]}
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(content, indent=1))
    os.replace(beside, path)
