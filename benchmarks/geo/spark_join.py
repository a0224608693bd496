"""Spark's own stream-stream join on the same hosts and topics, with either of its state stores.

`python -m geo.spark_join FILE` is the driver. It runs until it is terminated, and tells of each batch in the words of
balajoin's log. Its Kafka client options and its way to write checkpoints are balajoin's. It writes at least once.
"""

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from balajoin.config.models import Kafka
from balajoin.kafka import topics
from balajoin.kafka.client_options import spark_reader_options, spark_writer_options
from balajoin.spark.jars import default_cache
from balajoin.spark.session import LOCAL_CHECKPOINT_CONF, create_session
from geo import event_log, measuring
from geo.joining import Setting, count, spark_conf
from geo.loads import Load
from geo.outcome import Outcome

Store = Literal["default store", "RocksDB"]
STORES: tuple[Store, ...] = ("default store", "RocksDB")
STAGES = ("read", "join")
_PROVIDERS = {"default store": "HDFSBackedStateStoreProvider", "RocksDB": "RocksDBStateStoreProvider"}
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_PACKAGE = "org.apache.spark.sql.execution.streaming.state"


def run(setting: Setting, name: str, store: Store, load: Load) -> Outcome:
    hosts = setting.cluster.hosts
    folder = setting.folder / name
    (folder / "events").mkdir(parents=True)
    file = folder / "query.json"
    conf = {**spark_conf(setting, folder), _PROVIDER: f"{_PACKAGE}.{_PROVIDERS[store]}", **LOCAL_CHECKPOINT_CONF}
    # Its state needs the memory that balajoin's Python workers would have.
    conf["spark.executor.memory"] = "2000m"
    about = {
        "servers": setting.servers,
        "out": name,
        "probe": load.probe_topic,
        "build": load.build_topic,
        "interval_ms": load.interval_ms,
        "partitions": load.partitions,
        "nodes": len(hosts.workers),
        "batch": setting.batch_rows,
        "master": setting.cluster.url,
        "checkpoint": str(folder / "checkpoint"),
        "conf": conf,
    }
    file.write_text(json.dumps(about))
    log = folder / "query.log"
    command = [sys.executable, "-m", "geo.spark_join", str(file)]
    query = hosts.driver.start(command, log, {"SPARK_LOCAL_IP": hosts.driver.address})
    try:
        watched = measuring.watch(query, log, hosts, setting.goal(load), setting.say)
    finally:
        query.terminate()
        if not query.wait(60):
            query.kill()
    batches = event_log.batches(folder / "events", measuring.rows_by_batch(log))
    stages, driver_s, phases = measuring.stage_times(batches[setting.warm_up :], STAGES)
    made = Outcome(
        contender=f"Spark's join, {store}",
        load=load.name,
        workers=setting.worker_names,
        batch_rows=setting.batch_rows,
        warm_up=f"{setting.warm_up} batches",
        rows_per_s=measuring.rows_per_s(batches, setting.warm_up),
        finished=watched.finished,
        results=count(hosts.broker, setting.servers, name).records,
        expected=load.expected_results,
        repeated=None,
        batch_s=[batch.duration_ms / 1000 for batch in batches],
        stages=stages,
        driver_s=driver_s,
        phases_s=phases,
        hosts=measuring.host_uses(watched),
        placement=measuring.placement(batches[setting.warm_up :]),
        first_result_s=watched.first_result_s,
    )
    shutil.rmtree(folder / "checkpoint", ignore_errors=True)
    return made


def main(file: Path) -> None:
    about = json.loads(file.read_text())
    kafka = Kafka(bootstrap_servers=about["servers"])
    topics.create_missing(kafka, {about["out"]: topics.Shape(about["partitions"])}, 1)
    spark = create_session(
        master=about["master"],
        app_name=about["out"],
        spark_conf=about["conf"],
        cache=default_cache(os.environ),
        nodes=about["nodes"],
        checkpoint=about["checkpoint"],
    )
    for key in (_PROVIDER, "spark.sql.shuffle.partitions"):
        spark.conf.set(key, {**about["conf"], "spark.sql.shuffle.partitions": str(about["nodes"])}[key])
    frame = _joined(
        _side(spark, kafka, about["probe"], "probe", about["batch"]),
        _side(spark, kafka, about["build"], "build", about["batch"]),
        about["interval_ms"],
    )
    writer = frame.writeStream.format("kafka").options(**spark_writer_options(kafka)).option("topic", about["out"])
    query = writer.option("checkpointLocation", about["checkpoint"]).start()
    told = -1
    while query.isActive:
        for progress in query.recentProgress:
            if progress["batchId"] > told and progress["numInputRows"]:
                told = progress["batchId"]
                figures = (told, progress["numInputRows"], max(progress["sink"]["numOutputRows"], 0))
                line = "batch={} rows_in={} rows_out={}".format(*figures)
                print(f"{line} duration_ms={progress['durationMs']['triggerExecution']}", flush=True)
        time.sleep(0.2)
    query.awaitTermination()


def _side(spark: SparkSession, kafka: Kafka, topic: str, name: str, batch: int) -> DataFrame:
    reader = spark.readStream.format("kafka").options(**spark_reader_options(kafka)).option("subscribe", topic)
    records = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", batch).load()
    columns = [F.col(column).alias(f"{name}_{column}") for column in ("key", "value", "timestamp")]
    return records.select(*columns).withWatermark(f"{name}_timestamp", "10 minutes")


def _joined(probe: DataFrame, build: DataFrame, interval_ms: int) -> DataFrame:
    interval = f"INTERVAL '{interval_ms / 1000:.3f}' SECOND"
    within = f"build_timestamp BETWEEN probe_timestamp - {interval} AND probe_timestamp + {interval}"
    pairs = probe.join(build, F.expr(f"probe_key = build_key AND {within}"))
    return pairs.select(F.col("probe_key").alias("key"), F.expr("concat(probe_value, build_value)").alias("value"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
