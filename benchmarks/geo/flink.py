"""Flink SQL's interval join on the same hosts and topics: a job manager beside the driver, a task manager a worker.

It writes exactly once, with a checkpoint every ten seconds, and keeps its state in RocksDB or in the heap.
"""

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from balajoin.spark import java
from balajoin.spark.child import Child
from balajoin.spark.jars import default_cache, fetch_listed
from geo import measuring
from geo.broker import await_line
from geo.hosts import Host
from geo.joining import Setting, count
from geo.loads import Load
from geo.measuring import Goal
from geo.outcome import Outcome

Backend = Literal["RocksDB", "heap"]
BACKENDS: tuple[Backend, ...] = ("RocksDB", "heap")
REST_PORT = 8081
_START_WITHIN_S = 180
_CHECKPOINT_EVERY = "10 s"
_OPENED = (
    "lang",
    "net",
    "io",
    "nio",
    "lang.reflect",
    "text",
    "time",
    "util",
    "util.concurrent",
    "util.concurrent.atomic",
)
_FLAGS = (
    "-XX:+UseParallelGC",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    *(f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPENED),
)


@dataclass(frozen=True)
class Memory:
    """In MB. Together as much as a Spark executor and its Python workers may have."""

    heap: int
    managed: int
    """RocksDB's, outside of the heap."""


_MEMORY: dict[Backend, Memory] = {"RocksDB": Memory(600, 800), "heap": Memory(1400, 0)}
_NETWORK_MB = 64
_FRAMEWORK_MB = 128

_LOG4J = """rootLogger.level = INFO
rootLogger.appenderRef.out.ref = out
appender.out.name = out
appender.out.type = CONSOLE
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %-5p %c{1} %m%n
"""

_SETTINGS = """jobmanager.rpc.address: {manager}
jobmanager.rpc.port: 6123
jobmanager.bind-host: {own}
rest.address: {manager}
rest.bind-address: 0.0.0.0
rest.port: {rest_port}
execution.target: remote
parallelism.default: {parallelism}
taskmanager.host: {own}
taskmanager.bind-host: {own}
taskmanager.numberOfTaskSlots: 1
taskmanager.cpu.cores: 1
taskmanager.memory.framework.heap.size: {framework_mb}m
taskmanager.memory.framework.off-heap.size: {framework_mb}m
taskmanager.memory.jvm-metaspace.size: 256m
taskmanager.memory.jvm-overhead.min: 192m
taskmanager.memory.jvm-overhead.max: 192m
taskmanager.memory.task.heap.size: {memory.heap}m
taskmanager.memory.task.off-heap.size: 0m
taskmanager.memory.managed.size: {memory.managed}m
taskmanager.memory.network.min: {network_mb}m
taskmanager.memory.network.max: {network_mb}m
state.backend.type: {backend}
execution.checkpointing.interval: {checkpoint_every}
execution.checkpointing.mode: EXACTLY_ONCE
execution.checkpointing.incremental: true
execution.checkpointing.dir: {checkpoints}
io.tmp.dirs: {tmp}
metrics.fetcher.update-interval: 1000
restart-strategy.type: fixed-delay
restart-strategy.fixed-delay.attempts: 100
restart-strategy.fixed-delay.delay: 2 s
"""

_SOURCE = """CREATE TABLE {side} (k STRING, v STRING, ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL,
  WATERMARK FOR ts AS ts - INTERVAL '10' MINUTE) WITH (
  'connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{servers}',
  'properties.group.id' = '{name}', 'properties.isolation.level' = 'read_committed',
  'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset',
  'key.format' = 'raw', 'key.fields' = 'k', 'value.format' = 'raw', 'value.fields-include' = 'EXCEPT_KEY');
"""
_QUERY = """CREATE TABLE joined (k STRING, v STRING) WITH (
  'connector' = 'kafka', 'topic' = '{name}', 'properties.bootstrap.servers' = '{servers}',
  'key.format' = 'raw', 'key.fields' = 'k', 'value.format' = 'raw', 'value.fields-include' = 'EXCEPT_KEY',
  'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '{name}',
  'properties.transaction.timeout.ms' = '600000');
INSERT INTO joined SELECT probe.k, probe.v || build.v FROM probe JOIN build ON probe.k = build.k
  AND build.ts BETWEEN probe.ts - {interval} AND probe.ts + {interval};
"""


@dataclass(frozen=True)
class Flink:
    setting: Setting
    name: str
    backend: Backend
    folder: Path

    def start(self) -> list[Child]:
        """Starts the processes of a cluster of its own: nothing of an earlier run is left in them."""
        driver, *workers = self.setting.cluster.hosts.driver, *self.setting.cluster.hosts.workers
        manager = self._process(
            driver, "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint", "manager", 512
        )
        await_line(self.folder / f"manager-{driver.name}.log", "Rest endpoint listening at", _START_WITHIN_S, manager)
        heap = _MEMORY[self.backend].heap + _FRAMEWORK_MB
        tasks = [
            self._process(worker, "org.apache.flink.runtime.taskexecutor.TaskManagerRunner", "tasks", heap)
            for worker in workers
        ]
        for worker, child in zip(workers, tasks, strict=True):
            log = self.folder / f"tasks-{worker.name}.log"
            await_line(log, "Successful registration at resource manager", _START_WITHIN_S, child)
        return [manager, *tasks]

    def submit(self, load: Load) -> str:
        """Returns the job's id."""
        known = {"servers": self.setting.servers, "name": self.name, "interval": _interval(load.interval_ms)}
        file = self.folder / "join.sql"
        file.write_text(
            _SOURCE.format(side="probe", topic=load.probe_topic, **known)
            + _SOURCE.format(side="build", topic=load.build_topic, **known)
            + _QUERY.format(**known)
        )
        driver = self.setting.cluster.hosts.driver
        conf = self._settings(driver)
        client = [*self._java(conf, 256), "org.apache.flink.table.client.SqlClient", "-f", str(file)]
        told = driver.run(["/usr/bin/env", f"FLINK_CONF_DIR={conf}", *client])
        (self.folder / "client.log").write_text(told)
        if "Job ID: " not in told:
            raise RuntimeError(f"Flink did not take the query: {told[-3000:]}")
        return told.rpartition("Job ID: ")[2].split()[0]

    def _process(self, host: Host, main: str, role: str, heap_mb: int) -> Child:
        conf = self._settings(host)
        command = [*self._java(conf, heap_mb), main, "--configDir", str(conf)]
        return host.start(command, self.folder / f"{role}-{host.name}.log")

    def _java(self, conf: Path, heap_mb: int) -> list[str]:
        jars = fetch_listed(Path(__file__).with_name("flink.xml"), default_cache(os.environ), notice=self.setting.say)
        log4j = f"-Dlog4j2.configurationFile={conf / 'log4j2.properties'}"
        command = [str(java.require(os.environ)), *_FLAGS, f"-Xmx{heap_mb}m", log4j]
        return [*command, "-cp", os.pathsep.join(map(str, jars))]

    def _settings(self, host: Host) -> Path:
        conf = self.folder / f"conf-{host.name}"
        conf.mkdir(exist_ok=True)
        (conf / "log4j2.properties").write_text(_LOG4J)
        (conf / "config.yaml").write_text(
            _SETTINGS.format(
                manager=self.setting.cluster.hosts.driver.address,
                own=host.address,
                rest_port=REST_PORT,
                parallelism=len(self.setting.cluster.hosts.workers),
                memory=_MEMORY[self.backend],
                framework_mb=_FRAMEWORK_MB,
                network_mb=_NETWORK_MB,
                backend="rocksdb" if self.backend == "RocksDB" else "hashmap",
                checkpoint_every=_CHECKPOINT_EVERY,
                checkpoints=(self.folder / "checkpoint").as_uri(),
                tmp=host.folder / "tmp",
            )
        )
        return conf


def _interval(milliseconds: int) -> str:
    """Flink refuses intervals whose first field has more than three digits."""
    seconds, ms = divmod(milliseconds, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"INTERVAL '{days} {hours:02d}:{minutes:02d}:{seconds:02d}.{ms:03d}' DAY TO SECOND(3)"


def run(setting: Setting, name: str, backend: Backend, load: Load) -> Outcome:
    hosts = setting.cluster.hosts
    flink = Flink(setting, name, backend, setting.folder / name)
    flink.folder.mkdir()
    hosts.broker.run([sys.executable, "-m", "geo.topic", setting.servers, name, str(load.partitions)])
    running: list[Child] = []
    try:
        running += flink.start()
        job = flink.submit(load)
        log = flink.folder / "progress.log"
        where = (f"http://{hosts.driver.address}:{REST_PORT}", job, str(setting.batch_rows), str(load.rows))
        progress = hosts.driver.start([sys.executable, "-m", "geo.flink_progress", *where], log)
        running.append(progress)
        # The progress counts rows only, and its last line comes when all results are committed.
        goal = Goal(load.rows, 0, setting.warm_up, setting.limit_s)
        watched = measuring.watch(progress, log, hosts, goal, setting.say)
        batches = measuring.logged(log)
    finally:
        for child in reversed(running):
            child.kill()
            child.wait(20)
    shutil.rmtree(flink.folder / "checkpoint", ignore_errors=True)
    return Outcome(
        contender=f"Flink, {backend}",
        load=load.name,
        workers=setting.worker_names,
        batch_rows=setting.batch_rows,
        warm_up=f"the first {setting.warm_up * setting.batch_rows:,} rows",
        rows_per_s=measuring.logged_rows_per_s(batches, setting.warm_up),
        finished=watched.finished,
        results=count(hosts.broker, setting.servers, name).records,
        expected=load.expected_results,
        repeated=None,
        batch_s=[seconds for _, seconds in batches],
        hosts=measuring.host_uses(watched),
    )
