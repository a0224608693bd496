"""The operators' figures of each batch, in the query's progress: Spark carries them to the driver with the batch.

`values` gives, under PACKED of each stream, the `rows` that entered, the `dead` records, and how many of these were too
far `ahead` in time; under SOURCES, what routers sent: `rows_j` to node j, `probe_bytes` and `build_bytes` to other
nodes than the source's own, and `source_i`, source i's `SourceStatistics` in JSON; under NODES, `node_j`, node j's
`NodeStatistics`. A value is null or missing where an operator had nothing to do.
"""

import json
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from balajoin.core.sides import SIDES, Side
from balajoin.spark.labels import node_labels

PACKED: dict[Side, str] = {side: f"balajoin_{side}" for side in SIDES}
SOURCES = "balajoin_sources"
NODES = "balajoin_nodes"
_NOTES = "notes"


def packed(blocks: DataFrame, side: Side) -> DataFrame:
    """Observes the counts, and drops rows without a block."""
    counts = [F.sum(count).alias(count) for count in ("rows", "dead", "ahead")]
    return blocks.observe(PACKED[side], *counts).filter("block is not null")


def sources(routed: DataFrame, nodes: int) -> DataFrame:
    """Has one column for all sources: partitions may be added while the query runs."""
    labels = list(enumerate(node_labels(nodes)))
    return routed.observe(
        SOURCES,
        *[_sum("rows", F.col("node") == label).alias(f"rows_{node}") for node, label in labels],
        _sum("bytes", F.col("section") != "build").alias("probe_bytes"),
        _sum("bytes", F.col("section") == "build").alias("build_bytes"),
        F.collect_list("note").alias(_NOTES),
    )


def nodes(joined: DataFrame) -> DataFrame:
    """Observes the statistics, and drops their rows. Has one column for all nodes: each costs time for every result."""
    return joined.observe(NODES, F.collect_list("note").alias(_NOTES)).filter("note is null")


def values(progress: Any, name: str) -> dict[str, Any]:
    """The observed values under one of the names above; empty where nothing ran."""
    row = progress["observedMetrics"].get(name)
    found = row.asDict() if row is not None else {}
    notes = found.pop(_NOTES, None) or ()
    kind = "node" if name == NODES else "source"
    by_number = sorted((json.loads(note)[kind], note) for note in notes)
    return {**found, **{f"{kind}_{number}": note for number, note in by_number}}


def _sum(column: str, where: Column) -> Column:
    return F.coalesce(F.sum(F.when(where, F.col(column))), F.lit(0))
