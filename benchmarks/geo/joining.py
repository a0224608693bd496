"""Runs `balajoin run` on the cluster and measures it."""

import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from balajoin.observe.live import recording
from balajoin.observe.live.moment import Moment
from balajoin.routing.rule import Measure
from balajoin.spark.child import Child
from geo import event_log, measuring
from geo.counting import Counted
from geo.hosts import Host, Size
from geo.loads import Load
from geo.measuring import Goal, Say
from geo.outcome import Outcome
from geo.spark_cluster import Package, SparkCluster
from geo.supervised import Supervised

STAGES = ("read", "route", "join")
LATENESS = "10 min"
EXECUTOR_MEMORY = "1000m"
_MOST_RESTARTS = 10  # where something is broken on purpose; otherwise an end is a failure

_CONFIG = """
name = "{name}"
[kafka]
bootstrap_servers = "{servers}"
[probe]
topic = "{load.probe_topic}"
[build]
topic = "{load.build_topic}"
[join]
before = "{load.interval_ms} ms"
after = "{load.interval_ms} ms"
lateness = "{lateness}"
nodes = {nodes}
policy = "{policy}"
max_rows_per_batch = {batch}
{more}
[output]
topic = "{name}"
value = "concat(probe_value, build_value)"
id = "{id}"
[run]
checkpoint = "{folder}/checkpoint"
master = "{master}"
record = "{folder}/record.jsonl"
trigger = "0 s"
[topics]
partitions = {load.partitions}
[spark]
{spark}
"""


@dataclass(frozen=True)
class Setting:
    """What all runs of a matrix share."""

    cluster: SparkCluster
    package: Package
    servers: str
    sizes: Sequence[Size]
    folder: Path
    """Shared by all hosts: checkpoints are there."""
    batch_rows: int
    warm_up: int
    limit_s: float
    say: Say
    conf: Mapping[str, str] = field(default_factory=dict)
    """Spark settings of all runs."""

    @property
    def worker_names(self) -> tuple[str, ...]:
        return tuple(f"{size.cores:g} core, {size.mbit:g} Mbit/s" for size in self.sizes)

    def goal(self, load: Load) -> Goal:
        return Goal(load.rows, load.expected_results, self.warm_up, self.limit_s)


def spark_conf(setting: Setting, folder: Path) -> dict[str, str]:
    """What a driver on its own host needs, and an event log."""
    driver = setting.cluster.hosts.driver
    return {
        "spark.driver.host": driver.address,
        "spark.driver.bindAddress": driver.address,
        "spark.local.dir": str(driver.folder / "tmp"),
        "spark.executor.memory": EXECUTOR_MEMORY,
        "spark.executor.cores": "1",
        **setting.package.conf,
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        **setting.conf,
    }


def run(
    setting: Setting,
    name: str,
    policy: str,
    load: Load,
    *,
    measure: Measure = "work",
    conf: Mapping[str, str] | None = None,
    with_ids: bool = False,
    at_batch: Callable[[int], None] | None = None,
) -> Outcome:
    """`name` is that of the output topic, and unique. Records carry ids only where repeats are looked for."""
    hosts = setting.cluster.hosts
    folder = setting.folder / name
    (folder / "events").mkdir(parents=True)
    file = folder / "join.toml"
    spark = {**spark_conf(setting, folder), **(conf or {})}
    file.write_text(
        _CONFIG.format(
            name=name,
            servers=setting.servers,
            load=load,
            lateness=LATENESS,
            nodes=len(hosts.workers),
            policy=policy,
            batch=setting.batch_rows,
            more='skew.keys = ["user-00000000"]' if policy == "bppr" else f'skew.measure = "{measure}"',
            id="header" if with_ids else "none",
            folder=folder,
            master=setting.cluster.url,
            spark="\n".join(f'"{key}" = "{value}"' for key, value in spark.items()),
        )
    )
    service = [sys.executable, "-m", "balajoin"]
    hosts.driver.run([*service, "topics", "-c", str(file)])
    log = folder / "service.log"

    def start() -> Child:
        command = [*service, "run", "-c", str(file)]
        return hosts.driver.start(command, log, {"SPARK_LOCAL_IP": hosts.driver.address})

    query = Supervised(start, most=_MOST_RESTARTS if at_batch else 0)
    try:
        watched = measuring.watch(query, log, hosts, setting.goal(load), setting.say, at_batch)
    finally:
        query.stop(within_s=60)
    counted = count(hosts.broker, setting.servers, name)
    moments = [*recording.read(folder / "record.jsonl")]
    batches = event_log.batches(folder / "events", measuring.rows_by_batch(log))
    stages, driver_s, phases = measuring.stage_times(batches[setting.warm_up :], STAGES)
    used = measuring.host_uses(watched)
    made = Outcome(
        contender=policy if measure == "work" else f"{policy} by {measure}",
        load=load.name,
        workers=setting.worker_names,
        batch_rows=setting.batch_rows,
        warm_up=f"{setting.warm_up} batches",
        rows_per_s=measuring.rows_per_s(batches, setting.warm_up),
        finished=watched.finished,
        results=counted.records,
        expected=load.expected_results,
        repeated=counted.repeated if with_ids else None,
        batch_s=[batch.duration_ms / 1000 for batch in batches],
        stages=stages,
        driver_s=driver_s,
        phases_s=phases,
        balance=moments[-1].b_skewed if moments else None,
        node_rows=_sums(moment.node_rows for moment in moments),
        hosts=used,
        traffic=_traffic(moments),
        between_workers=measuring.between_workers(used),
        placement=measuring.placement(batches[setting.warm_up :]),
        restarts=query.restarts,
        first_result_s=watched.first_result_s,
    )
    shutil.rmtree(folder / "checkpoint", ignore_errors=True)
    return made


def count(host: Host, servers: str, topic: str) -> Counted:
    return Counted(*map(int, host.run([sys.executable, "-m", "geo.counting", servers, topic]).split()))


def _traffic(moments: Sequence[Moment]) -> dict[str, int]:
    kinds = moments[-1].traffic if moments else {}
    return {kind: sum(moment.traffic.get(kind, 0) for moment in moments) for kind in kinds}


def _sums(rows: Iterable[Sequence[int]]) -> list[int]:
    return [sum(column) for column in zip(*rows, strict=True)]
