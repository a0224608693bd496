"""The control and the replica topic as inputs of the nodes: each record becomes an `Addressed` row, as routers send.

A record that names no node of this join goes to node 0, which counts it.
"""

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from balajoin.config.models import Kafka
from balajoin.control.encoding import HEADER
from balajoin.core.envelope import Addressed, defaults_of, schema_of
from balajoin.edge import intake
from balajoin.edge.batch_time import batch_time
from balajoin.spark.labels import node_labels
from balajoin.spark.schemas import spark_schema
from balajoin.spark.session import is_local

_LEAST_TASKS = 2  # with 1, Spark runs a task even if there is nothing to read


def messages(
    spark: SparkSession,
    control_topic: str,
    begin_control: str,
    replica_topic: str,
    begin_replicas: str,
    kafka: Kafka,
    nodes: int,
) -> DataFrame:
    """Both topics, on one machine read by half as many tasks as there are nodes.

    On a cluster this would make Spark end the query when it loses an executor: the output counts as indeterminate then.
    """
    control = signals(spark, control_topic, kafka, nodes, begin_control)
    both = control.unionAll(replicas(spark, replica_topic, kafka, nodes, begin_replicas))
    return both.coalesce(max(_LEAST_TASKS, nodes // 2)) if is_local(spark.sparkContext.master or "") else both


def signals(spark: SparkSession, topic: str, kafka: Kafka, nodes: int, begin: str) -> DataFrame:
    """Addresses each signal to the home of its key, and ticks to every node."""
    text = _text(F.col("value"))
    records = _records(spark, topic, kafka, begin)
    home = F.array(F.get_json_object(text, "$.home"))
    everybody = F.array(*[F.lit(str(node)) for node in range(nodes)])
    addressees = F.when(F.get_json_object(text, "$.tick_ms").isNotNull(), everybody).otherwise(home)
    each = records.withColumn("addressee", F.explode(addressees))
    return _addressed(each, "signal", text, F.col("addressee"), nodes)


def replicas(spark: SparkSession, topic: str, kafka: Kafka, nodes: int, begin: str) -> DataFrame:
    """Addresses each shipment to its node."""
    header = _text(F.expr(f"get(filter(headers, header -> header.key = '{HEADER}'), 0).value"))
    records = _records(spark, topic, kafka, begin)
    return _addressed(records, "replica", header, F.get_json_object(header, "$.node"), nodes)


def _text(written: Column) -> Column:
    """Replaces bytes that are no text: Arrow in Python would end the query at the first of them."""
    return F.make_valid_utf8(written.cast("string"))


def _records(spark: SparkSession, topic: str, kafka: Kafka, begin: str) -> DataFrame:
    """Reads without a rate limit: the next batch must get all that a batch publishes."""
    return intake.records(spark, topic, kafka, starting_offsets=begin)


def _addressed(records: DataFrame, section: str, note: Column, node: Column, nodes: int) -> DataFrame:
    labels = F.array(*map(F.lit, node_labels(nodes)))
    label = F.get(labels, F.expr("node"))
    is_known = F.col("node").between(0, nodes - 1)
    given = {
        "node": F.when(is_known, label).otherwise(F.lit(node_labels(nodes)[0])),
        "section": F.when(is_known, F.lit(section)).otherwise(F.lit("foreign")),
        "now_ms": batch_time() / 1000,
        "note": F.col("note"),
        "block": F.col("value"),
    }
    columns = {**{name: F.lit(value) for name, value in defaults_of(Addressed).items()}, **given}
    named = records.select(note.alias("note"), "value", node.try_cast("int").alias("node"))
    return named.select(*[columns[c.name].cast(c.dataType).alias(c.name) for c in spark_schema(schema_of(Addressed))])
