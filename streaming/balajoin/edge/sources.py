"""One input topic as blocks of rows: read from Kafka, turned into rows by Spark SQL, packed in Python."""

from pyspark.sql import DataFrame, SparkSession

from balajoin.config.models import JoinSettings, Kafka, Stream
from balajoin.core.envelope import Packed, schema_of
from balajoin.core.sides import Side
from balajoin.edge import intake
from balajoin.edge.pack import Packer
from balajoin.kafka.producer import Publisher
from balajoin.spark.schemas import spark_schema
from balajoin.spark.session import is_local


def blocks(
    spark: SparkSession,
    side: Side,
    stream: Stream,
    typed: intake.Typed,
    kafka: Kafka,
    settings: JoinSettings,
    publisher: Publisher,
    begin: str,
    hash_bits: int,
) -> DataFrame:
    """`Packed` rows. `begin` is where reading starts, as Spark's Kafka source takes it."""
    records = intake.records(spark, stream.topic, kafka, begin, settings.max_rows_per_batch, stream.isolation_level)
    rows = intake.rows(_coalesced(records), side, stream, typed, settings.max_ahead_ms * 1000, hash_bits)
    packer = Packer(side, stream.topic, settings.nodes, settings.dead_letter_topic, settings.max_ahead_ms, publisher)
    return rows.mapInArrow(packer.as_function(), spark_schema(schema_of(Packed)))


def _coalesced(records: DataFrame) -> DataFrame:
    """On one machine, no more reading tasks than can run at once.

    A task for each partition took 20 ms of CPU time even with nothing to read. On a cluster the number of cores
    changes, and a task for each partition lets all cores work.
    """
    context = records.sparkSession.sparkContext
    return records.coalesce(context.defaultParallelism) if is_local(context.master or "") else records
