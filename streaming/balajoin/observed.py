"""What the operators tell of each batch, in the query's progress: Spark carries it to the driver with the batch itself.

`observedMetrics` holds, under SOURCES, what routers sent: `rows_j` and `bytes_j` to node j, and `source_i`, source i's
`SourceStatistics` in JSON; under NODES, `node_j`, node j's `NodeStatistics`. Null where one had nothing to do.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from balajoin.labels import node_labels

SOURCES = "balajoin_sources"
NODES = "balajoin_nodes"


def sources(routed: DataFrame, nodes: int, partitions: int) -> DataFrame:
    labels = list(enumerate(node_labels(nodes)))
    return routed.observe(
        SOURCES,
        *[_sum("rows", F.col("node") == label).alias(f"rows_{node}") for node, label in labels],
        *[
            _sum("bytes", F.col("section") == section if section == "build" else F.col("section") != "build").alias(
                f"{section}_bytes"
            )
            for section in ("probe", "build")
        ],
        *[_the_one(F.col("source") == source).alias(f"source_{source}") for source in range(partitions)],
    )


def nodes(joined: DataFrame, count: int) -> DataFrame:
    """Takes the rows out that hold nothing but statistics."""
    at = F.get_json_object("note", "$.node")
    noted = joined.observe(NODES, *[_the_one(at == str(node)).alias(f"node_{node}") for node in range(count)])
    return noted.filter("note is null")


def _sum(column: str, where: Column) -> Column:
    return F.coalesce(F.sum(F.when(where, F.col(column))), F.lit(0))


def _the_one(where: Column) -> Column:
    return F.max(F.when(F.col("note").isNotNull() & where, F.col("note")))
