"""The whole join, as the paper draws it: sources → routers → nodes → results. Read this first."""

import tempfile
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout

from balajoin import clients, edge, results, topics
from balajoin.compute.processor import JOINED, NodeProcessor
from balajoin.compute.spec import JoinSpec, LateTopic
from balajoin.config import JoinSettings, Kafka, Stream
from balajoin.control.publisher import Publisher
from balajoin.labels import node_labels
from balajoin.pack import PACKED, Packer
from balajoin.routing.router import ROUTED, STATE, Router
from balajoin.sides import Side

ROUTED_ROWS = "balajoin_routed_rows"
"""Under this name the query's progress tells, in `observedMetrics`, how many rows each node was sent."""

_REQUIRED_CONF = {
    "spark.sql.adaptive.enabled": "false",  # it would change the number of state partitions
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}


def join(
    spark: SparkSession,
    probe: Stream,
    build: Stream,
    *,
    kafka: Kafka,
    settings: JoinSettings,
    cache_dir: str | None = None,
    hash_bits: int = 64,
) -> DataFrame:
    """The continuous interval join of two topics, as an ordinary streaming DataFrame (columns: see `results`).

    Sets what the operators need on the session: `spark.sql.shuffle.partitions` becomes `settings.nodes`. `cache_dir`
    is a folder on each executor's own disk. `hash_bits` below 64 forces hash collisions, for tests.
    """
    for name, value in _REQUIRED_CONF.items():
        spark.conf.set(name, value)
    spark.conf.set("spark.sql.shuffle.partitions", settings.nodes)

    probe_types, build_types = edge.types(spark, probe, build)
    publisher = Publisher.of(clients.librdkafka_options(kafka))

    def packed(side: Side, stream: Stream, typed: edge.Typed) -> DataFrame:
        packer = Packer(side, stream.topic, settings.nodes, settings.dead_letter_topic, publisher)
        records = edge.records(spark, stream, kafka, settings)
        return edge.rows(records, side, stream, typed, hash_bits).mapInArrow(packer.as_function(), PACKED)

    router = Router(settings.policy, settings.nodes, settings.lateness_ms * 1000)
    routed = (
        packed("probe", probe, probe_types)
        .unionAll(packed("build", build, build_types))
        .groupBy("source")
        .applyInPandasWithState(router.as_function(), ROUTED, STATE, "append", GroupStateTimeout.NoTimeout)
        .observe(ROUTED_ROWS, *_rows_by_node(settings.nodes))
    )

    spec = JoinSpec(
        before_us=settings.before_ms * 1000,
        after_us=settings.after_ms * 1000,
        lateness_us=settings.lateness_ms * 1000,
        idle_after_ms=settings.idle_after_ms,
        sources={
            "probe": topics.partition_count(kafka, probe.topic),
            "build": topics.partition_count(kafka, build.topic),
        },
        pins={
            "join.nodes": settings.nodes,
            "probe.topic": probe.topic,
            "build.topic": build.topic,
            "probe.key": probe.key,
            "build.key": build.key,
        },
    )
    late = LateTopic(settings.late_topic, {"probe": probe.topic, "build": build.topic}, publisher.options)
    cache = cache_dir or str(Path(tempfile.gettempdir()) / "balajoin")
    joined = routed.groupBy("node").transformWithStateInPandas(
        NodeProcessor(settings.nodes, spec, late, cache), JOINED, "append", "none"
    )
    return results.named(joined, probe_types, build_types)


def _rows_by_node(nodes: int) -> list[Column]:
    return [
        F.coalesce(F.sum(F.when(F.col("node") == label, F.col("rows"))), F.lit(0)).alias(f"node_{node}")
        for node, label in enumerate(node_labels(nodes))
    ]
