"""The control and the replica topic as inputs of the nodes: each record as a row of the router's columns.

What names no node of this join goes to node 0, which counts it.
"""

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from balajoin.config.models import Kafka
from balajoin.control.encoding import HEADER
from balajoin.edge import intake
from balajoin.spark.labels import node_labels


def signals(spark: SparkSession, topic: str, kafka: Kafka, nodes: int, begin: str) -> DataFrame:
    """To the home of each signal's key; ticks to every node."""
    text = _text(F.col("value"))
    records = _records(spark, topic, kafka, begin)
    home = F.array(F.get_json_object(text, "$.home"))
    everybody = F.array(*[F.lit(str(node)) for node in range(nodes)])
    addressees = F.when(F.get_json_object(text, "$.tick_ms").isNotNull(), everybody).otherwise(home)
    each = records.withColumn("addressee", F.explode(addressees))
    return _addressed(each, "signal", text, F.col("addressee"), nodes)


def replicas(spark: SparkSession, topic: str, kafka: Kafka, nodes: int, begin: str) -> DataFrame:
    """To the node that each shipment is for."""
    header = _text(F.expr(f"get(filter(headers, header -> header.key = '{HEADER}'), 0).value"))
    records = _records(spark, topic, kafka, begin)
    return _addressed(records, "replica", header, F.get_json_object(header, "$.node"), nodes)


def _text(written: Column) -> Column:
    """Python's Arrow would end the query at the first byte that is no text."""
    return F.make_valid_utf8(written.cast("string"))


def _records(spark: SparkSession, topic: str, kafka: Kafka, begin: str) -> DataFrame:
    """Without a rate limit: what a batch publishes must be there for the next one, as a whole."""
    return intake.records(spark, topic, kafka, starting_offsets=begin)


def _addressed(records: DataFrame, section: str, note: Column, node: Column, nodes: int) -> DataFrame:
    labels = F.array(*map(F.lit, node_labels(nodes)))
    label = F.get(labels, F.expr("node"))
    is_known = F.col("node").between(0, nodes - 1)
    return records.select(note.alias("note"), "value", node.try_cast("int").alias("node")).select(
        F.when(is_known, label).otherwise(F.lit(node_labels(nodes)[0])).cast("bigint").alias("node"),
        F.when(is_known, F.lit(section)).otherwise(F.lit("foreign")).alias("section"),
        F.lit(-1).cast("int").alias("source"),
        F.lit(0).cast("bigint").alias("watermark"),
        F.lit(0).cast("bigint").alias("now_ms"),
        F.lit(0).cast("bigint").alias("rows"),
        F.lit(0).cast("bigint").alias("bytes"),
        "note",
        F.col("value").alias("block"),
    )
