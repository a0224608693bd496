"""The result's columns, as a user sees them."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from balajoin.core.spec import KINDS, JoinType
from balajoin.edge import keys
from balajoin.edge.intake import Typed


def named(joined: DataFrame, probe: Typed, build: Typed, type_: JoinType = "inner") -> DataFrame:
    """key, then value, time, partition and offset of both sides, and an id that every repeat of a result has.

    In a row without a match the other side's columns are null. Semi and anti joins have no columns of the build side.
    """
    position = ("probe_partition", "probe_offset", "build_partition", "build_offset")
    both = joined.select(
        keys.from_bytes(F.col("key"), probe.key).alias("key"),
        F.col("probe_value").cast(probe.value).alias("probe_value"),
        F.timestamp_micros("probe_time").alias("probe_time"),
        "probe_partition",
        "probe_offset",
        F.col("build_value").cast(build.value).alias("build_value"),
        F.timestamp_micros("build_time").alias("build_time"),
        "build_partition",
        "build_offset",
        F.concat_ws("-", *[F.coalesce(F.col(name).cast("string"), F.lit("")) for name in position]).alias("id"),
    )
    if KINDS[type_].pairs:
        return both
    return both.drop(*[name for name in both.columns if name.startswith("build_")])
