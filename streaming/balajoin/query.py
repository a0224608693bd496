"""The whole join, as the paper draws it: sources → routers → nodes → results. Read this first."""

from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.state import GroupStateTimeout

from balajoin.checkpoints import seed as seeds
from balajoin.compute.pairs import JOINED
from balajoin.compute.processor import NodeProcessor
from balajoin.config.models import JoinSettings, Kafka, Stream
from balajoin.config.pinned import pins
from balajoin.control import streams
from balajoin.core.envelope import Addressed, schema_of
from balajoin.core.sides import Side
from balajoin.core.spec import JoinSpec, SideTopics
from balajoin.edge import given_keys, intake, results, sources
from balajoin.kafka import client_options, compaction, topics
from balajoin.kafka.producer import Publisher
from balajoin.observe import observed
from balajoin.plan import JoinPlan
from balajoin.routing.router import STATE, Router
from balajoin.sinks.exactly_once import Delivery
from balajoin.spark.schemas import spark_schema


def join(
    spark: SparkSession,
    probe: Stream,
    build: Stream,
    *,
    kafka: Kafka,
    settings: JoinSettings,
    cache_dir: str | None = None,
    checkpoint: str | None = None,
) -> DataFrame:
    """The continuous interval join of two topics, as an ordinary streaming DataFrame (columns: see `edge.results`).

    Sets what the operators need on the session: `spark.sql.shuffle.partitions` becomes `settings.nodes`. If that is
    changed before the query is started, the query refuses to run: see `spark.partitions`. `cache_dir` is a folder on
    each executor's own disk, its temporary folder by default. `checkpoint` is the query's, and needed if `balajoin
    rescale` wrote it. Side topics that `settings` leave out are named after both inputs: `<probe>-<build>.control`, ….
    """
    return plan(
        spark, probe, build, kafka=kafka, settings=settings, cache_dir=cache_dir, checkpoint=checkpoint
    ).prepare()


def plan(
    spark: SparkSession,
    probe: Stream,
    build: Stream,
    *,
    kafka: Kafka,
    settings: JoinSettings,
    cache_dir: str | None,
    checkpoint: str | None,
    delivery: Delivery | None = None,
    hash_bits: int = 64,
) -> JoinPlan:
    """Builds the join and changes nothing outside of it.

    With a `delivery` the results are written by the query itself, by its nodes wherever they can make the records.
    `hash_bits` below 64 forces hash collisions, for tests.
    """
    settings = settings.of_inputs(probe, build)
    probe_types, build_types = intake.types(spark, probe, build)
    publisher = Publisher.of(client_options.librdkafka_options(kafka))
    control, replica, nodes = settings.control_topic, settings.replica_topic, settings.nodes
    partitions = topics.partition_counts(kafka, [probe.topic, build.topic, control, replica])
    compaction.require_none(kafka, {"probe": probe, "build": build})
    seed = seeds.read(spark, checkpoint, nodes)
    source_counts: dict[Side, int] = {"probe": partitions[probe.topic], "build": partitions[build.topic]}
    spec = JoinSpec.of(settings, pins(probe, build, settings), source_counts, plan=uuid4().hex)

    def packed(side: Side, stream: Stream, typed: intake.Typed) -> DataFrame:
        begin = seed.first_offsets(side, stream.topic, partitions, stream.starting_offsets)
        blocks = sources.blocks(spark, side, stream, typed, kafka, settings, publisher, begin, hash_bits)
        return observed.packed(blocks, side)

    rule = given_keys.rule(spark, settings.skew, probe_types.key, spec, hash_bits)
    router = Router.of(settings, rule, publisher, spec.plan, seed.sources)
    routed = (
        packed("probe", probe, probe_types)
        .unionAll(packed("build", build, build_types))
        .groupBy("source")
        .applyInPandasWithState(
            router.as_function(), spark_schema(schema_of(Addressed)), STATE, "append", GroupStateTimeout.NoTimeout
        )
    )
    begin_control = seed.first_offsets("control", control, partitions, "earliest")
    begin_replicas = seed.first_offsets("replicas", replica, partitions, "earliest")
    origins: dict[Side, str] = {"probe": probe.topic, "build": build.topic}
    side_topics = SideTopics(settings.late_topic, control, replica, origins, publisher.options)
    sink = delivery.node_sink(settings.type, probe_types, build_types, spark) if delivery else None
    processor = NodeProcessor(nodes, spec, side_topics, cache_dir, sink)
    joined = (
        observed.sources(routed, nodes)
        .unionAll(streams.messages(spark, control, begin_control, replica, begin_replicas, kafka, nodes))
        .groupBy("node")
        .transformWithStateInPandas(processor, spark_schema(JOINED), "append", "none", initialState=seed.first_states())
    )
    named = results.named(observed.nodes(joined), probe_types, build_types, settings.type)
    if delivery and sink is None:
        named = delivery.through_spark(named)
    return JoinPlan(named, settings, publisher, awaits_matches=bool(spec.kind.awaited), owes_results=seed.owing)
