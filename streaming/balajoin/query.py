"""The whole join, as the paper draws it: sources → routers → nodes → results. Read this first."""

from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.state import GroupStateTimeout

from balajoin.checkpoints import seed as seeds
from balajoin.compute.processor import JOINED, NodeProcessor
from balajoin.config.models import JoinSettings, Kafka, Stream
from balajoin.config.pinned import pins
from balajoin.config.redaction import SECRET_NAMES
from balajoin.control import streams
from balajoin.control.encoding import wake_up_record
from balajoin.core.sides import Side
from balajoin.core.spec import JoinSpec, SideTopics
from balajoin.edge import given_keys, intake, results
from balajoin.edge.pack import PACKED, Packer
from balajoin.kafka import client_options, compaction, topics
from balajoin.kafka.producer import Publisher
from balajoin.observe import idle_ticks, observed
from balajoin.routing.router import ROUTED, STATE, Router
from balajoin.spark.partitions import SHUFFLE_PARTITIONS

_REQUIRED_CONF = {
    "spark.sql.redaction.options.regex": f"{SECRET_NAMES}|url",  # or plans would show keys and logins
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
    checkpoint: str | None = None,
    hash_bits: int = 64,
) -> DataFrame:
    """The continuous interval join of two topics, as an ordinary streaming DataFrame (columns: see `edge.results`).

    Sets what the operators need on the session: `spark.sql.shuffle.partitions` becomes `settings.nodes`. If that is
    changed before the query is started, the query refuses to run: see `spark.partitions`. `cache_dir` is a folder on
    each executor's own disk, its temporary folder by default. `checkpoint` is the query's, and needed if `balajoin
    rescale` wrote it. `hash_bits` below 64 forces hash collisions, for tests.
    """
    for name, value in _REQUIRED_CONF.items():
        spark.conf.set(name, value)
    spark.conf.set(SHUFFLE_PARTITIONS, settings.nodes)

    probe_types, build_types = intake.types(spark, probe, build)
    publisher = Publisher.of(client_options.librdkafka_options(kafka))
    plan = uuid4().hex
    partitions = topics.partition_counts(
        kafka, [probe.topic, build.topic, settings.control_topic, settings.replica_topic]
    )
    compaction.require_none(kafka, {"probe": probe, "build": build})
    seed = seeds.read(spark, checkpoint, settings.nodes)

    def packed(side: Side, stream: Stream, typed: intake.Typed) -> DataFrame:
        packer = Packer(
            side, stream.topic, settings.nodes, settings.dead_letter_topic, settings.max_ahead_ms, publisher
        )
        begin = seed.first_offsets(side, stream.topic, partitions, stream.starting_offsets)
        records = intake.records(spark, stream.topic, kafka, begin, settings.max_rows_per_batch, stream.isolation_level)
        rows = intake.rows(records, side, stream, typed, settings.max_ahead_ms * 1000, hash_bits)
        return observed.packed(rows.mapInArrow(packer.as_function(), PACKED), side)

    router = Router(
        policy=settings.policy,
        rule=given_keys.rule(spark, settings.skew, probe_types.key, hash_bits, whole_rows=settings.type != "inner"),
        nodes=settings.nodes,
        lateness_us=settings.lateness_ms * 1000,
        lease_us=settings.skew.lease_ms * 1000,
        control_topic=settings.control_topic,
        publisher=publisher,
        plan=plan,
        first_states=seed.sources,
    )
    routed = (
        packed("probe", probe, probe_types)
        .unionAll(packed("build", build, build_types))
        .groupBy("source")
        .applyInPandasWithState(router.as_function(), ROUTED, STATE, "append", GroupStateTimeout.NoTimeout)
    )
    routed = observed.sources(routed, settings.nodes)
    first_signals = seed.first_offsets("control", settings.control_topic, partitions, "earliest")
    signals = streams.signals(spark, settings.control_topic, kafka, settings.nodes, first_signals)
    first_replicas = seed.first_offsets("replicas", settings.replica_topic, partitions, "earliest")
    replicas = streams.replicas(spark, settings.replica_topic, kafka, settings.nodes, first_replicas)
    if seed.owing or settings.type != "inner":
        publisher.publish(settings.control_topic, [wake_up_record()], whole=True)

    spec = JoinSpec(
        nodes=settings.nodes,
        before_us=settings.before_ms * 1000,
        after_us=settings.after_ms * 1000,
        lateness_us=settings.lateness_ms * 1000,
        idle_after_ms=settings.idle_after_ms,
        sources={"probe": partitions[probe.topic], "build": partitions[build.topic]},
        pins=pins(probe, build, settings),
        type=settings.type,
        plan=plan,
    )
    side_topics = SideTopics(
        late=settings.late_topic,
        control=settings.control_topic,
        replicas=settings.replica_topic,
        origins={"probe": probe.topic, "build": build.topic},
        options=publisher.options,
    )
    processor = NodeProcessor(settings.nodes, spec, side_topics, cache_dir)
    joined = (
        routed.unionAll(signals)
        .unionAll(replicas)
        .groupBy("node")
        .transformWithStateInPandas(processor, JOINED, "append", "none", initialState=seed.first_states())
    )
    if settings.type != "inner":
        idle_ticks.keep_time(spark, settings, publisher)
    return results.named(observed.nodes(joined), probe_types, build_types, settings.type)
