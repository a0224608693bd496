"""The operators of this join with no logic in them: the time that Spark needs for them is a lower bound."""

import sys
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
from contenders import NODES, OUR_CONF, Contender, Workload
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import BinaryType, LongType, StructType

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import this module

_PACKED = pa.schema([("block", pa.binary())])
_ROUTED = "node bigint, block binary"
_JOINED = "key binary, value binary"


def _pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield pa.record_batch([[b""]], schema=_PACKED)


def _route(_: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    for _frame in frames:
        pass
    state.update((b"",))
    yield pd.DataFrame({"node": range(NODES), "block": [b""] * NODES})


class _Node(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self._state = handle.getMapState(
            "state", StructType().add("number", LongType()), StructType().add("block", BinaryType())
        )

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        for _ in rows:
            pass
        self._state.updateValue((0,), (b"",))
        yield pd.DataFrame({"key": [b""], "value": [b""]})

    def close(self) -> None:
        pass


def _bare(spark: SparkSession, load: Workload) -> DataFrame:
    spark.conf.set("spark.sql.shuffle.partitions", NODES)

    def packed(topic: str) -> DataFrame:
        return load.records(spark, topic).select("key", "value").mapInArrow(_pack, "block binary")

    return (
        packed(load.probe)
        .unionAll(packed(load.build))
        .withColumn("source", F.spark_partition_id())
        .groupBy("source")
        .applyInPandasWithState(_route, _ROUTED, "state binary", "append", GroupStateTimeout.NoTimeout)
        .groupBy("node")
        .transformWithStateInPandas(_Node(), _JOINED, "append", "none")
    )


BARE = Contender("the same operators, empty", _bare, OUR_CONF, tuned=True)
