"""Reads the checkpoint of the last finished batch with Spark's state data source."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from balajoin.checkpoints.files import Folder
from balajoin.errors import StateError
from balajoin.spark import failures
from balajoin.spark.labels import source_of

_NODES, _SOURCES = "transformWithStateInPandasExec", "applyInPandasWithState"
_VARIABLES = {"state"}

InputName = Literal["probe", "build", "control", "replicas"]
INPUTS: tuple[InputName, ...] = get_args(InputName)

Offsets = Mapping[str, Mapping[str, int]]
"""For each topic and partition of one input, the first offset that is not read yet."""


@dataclass(frozen=True)
class Checkpoint:
    location: str
    join: str | None
    """Spark's id of the query; None before the first start."""
    batch: int
    """The last finished batch."""
    unfinished: int | None
    """The batch that was begun but not finished; the next start repeats it."""
    nodes: int
    offsets: Mapping[InputName, Offsets]
    states: DataFrame
    """`node int, number bigint, block binary`: heads and blocks of all nodes."""
    sources: Mapping[int, bytes]


@contextmanager
def explained(location: str, servers: str = "", file: str = "FILE") -> Iterator[None]:
    """Turns Spark's errors about a checkpoint into one line."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        trace = failures.trace_of(error)
        raise failures.explain(trace, failures.Place(servers, location, file)) from error


def read(spark: SparkSession, location: str) -> Checkpoint:
    folder = Folder(spark, location)
    if not folder.exists("metadata"):
        raise StateError(f"there is no checkpoint at {location}: check the path, or start the join with it once")
    finished, begun = folder.numbers("commits"), folder.numbers("offsets")
    if not finished:
        raise StateError(f"the checkpoint {location} holds nothing yet: no batch was finished with it")
    batch = finished[-1]
    spark.streams  # noqa: B018 - makes Spark's state coordinator, which its state data source needs
    operators = _operators(spark, folder.location, location, folder.exists("state"))
    return Checkpoint(
        location=location,
        join=json.loads(folder.read("metadata"))["id"],
        batch=batch,
        unfinished=begun[-1] if begun and begun[-1] > batch else None,
        nodes=operators[_NODES].partitions,
        offsets=_offsets(folder.read(f"offsets/{batch}").decode(), location),
        states=_node_states(spark, folder.location, operators[_NODES].id, batch),
        sources=_source_states(spark, folder.location, operators[_SOURCES], batch),
    )


@dataclass(frozen=True)
class _Operator:
    id: int
    partitions: int


def _operators(spark: SparkSession, path: str, location: str, stateful: bool) -> dict[str, _Operator]:
    rows = spark.read.format("state-metadata").load(path).collect() if stateful else []
    if sorted(row["operatorName"] for row in rows) != sorted((_NODES, _SOURCES)):
        raise StateError(
            f"the checkpoint {location} was not written by balajoin: its query has other stateful operators"
        )
    for row in rows:
        variables = json.loads(row["operatorProperties"] or "{}").get("stateVariables", [])
        if row["operatorName"] == _NODES and {variable["stateName"] for variable in variables} != _VARIABLES:
            raise StateError(
                f"another version of balajoin wrote the checkpoint {location}: run the balajoin that wrote it, "
                "or start with a new checkpoint"
            )
    return {row["operatorName"]: _Operator(row["operatorId"], row["numPartitions"]) for row in rows}


def _offsets(log: str, location: str) -> dict[InputName, Offsets]:
    """The log's first line is its format, the second is Spark's own, and then each input has a line."""
    try:
        version, _, *inputs = log.split("\n")
        if version == "v1":
            return dict(zip(INPUTS, map(json.loads, inputs), strict=True))
    except ValueError:
        pass
    raise StateError(
        f"the checkpoint {location} cannot be read: its offset log is damaged, or of another Spark. Restore it from a "
        "copy, or start with a new checkpoint"
    )


def _node_states(spark: SparkSession, path: str, operator: int, batch: int) -> DataFrame:
    stored = (
        spark.read.format("statestore")
        .option("operatorId", operator)
        .option("stateVarName", "state")
        .option("batchId", batch)
        .load(path)
    )
    # Partition j holds node j only: see `labels`.
    return stored.select(
        F.col("partition_id").alias("node"),
        F.col("user_map_key.number").alias("number"),
        F.col("user_map_value.block").alias("block"),
    )


def _source_states(spark: SparkSession, path: str, operator: _Operator, batch: int) -> dict[int, bytes]:
    stored = spark.read.format("statestore").option("operatorId", operator.id).option("batchId", batch).load(path)
    rows = stored.select(F.col("key.source").alias("label"), F.col("value.groupState.state").alias("state")).collect()
    return {source_of(row["label"], operator.partitions): bytes(row["state"]) for row in rows}
