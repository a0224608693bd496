"""What the operators tell of each batch, in the query's progress: Spark carries it to the driver with the batch itself.

`observedMetrics` holds, under PACKED of each stream, the `rows` that entered and the `dead` ones that did not; under
SOURCES, what routers sent: `rows_j` to node j, `probe_bytes` and `build_bytes` to other
nodes than the source's own, and `source_i`, source i's `SourceStatistics` in JSON; under NODES, `node_j`, node j's
`NodeStatistics`. Null where one had nothing to do.
"""

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from balajoin.labels import node_labels
from balajoin.sides import SIDES, Side

PACKED: dict[Side, str] = {side: f"balajoin_{side}" for side in SIDES}
SOURCES = "balajoin_sources"
NODES = "balajoin_nodes"


def packed(blocks: DataFrame, side: Side) -> DataFrame:
    """Takes the rows out that hold no block."""
    return blocks.observe(PACKED[side], *[F.sum(count).alias(count) for count in ("rows", "dead")]).filter(
        "block is not null"
    )


def sources(routed: DataFrame, nodes: int, partitions: int) -> DataFrame:
    labels = list(enumerate(node_labels(nodes)))
    return routed.observe(
        SOURCES,
        *[_sum("rows", F.col("node") == label).alias(f"rows_{node}") for node, label in labels],
        _sum("bytes", F.col("section") != "build").alias("probe_bytes"),
        _sum("bytes", F.col("section") == "build").alias("build_bytes"),
        *[_the_one(F.col("source") == source).alias(f"source_{source}") for source in range(partitions)],
    )


def nodes(joined: DataFrame, count: int) -> DataFrame:
    """Takes the rows out that hold nothing but statistics."""
    at = F.get_json_object("note", "$.node")
    noted = joined.observe(NODES, *[_the_one(at == str(node)).alias(f"node_{node}") for node in range(count)])
    return noted.filter("note is null")


def values(progress: Any, name: str) -> dict[str, Any]:
    """What a batch's progress holds under SOURCES or NODES; empty where nothing ran."""
    row = progress["observedMetrics"].get(name)
    return row.asDict() if row is not None else {}


def _sum(column: str, where: Column) -> Column:
    return F.coalesce(F.sum(F.when(where, F.col(column))), F.lit(0))


def _the_one(where: Column) -> Column:
    return F.max(F.when(F.col("note").isNotNull() & where, F.col("note")))
