"""The result's columns, as a user sees them."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from balajoin import keys
from balajoin.edge import Typed


def named(joined: DataFrame, probe: Typed, build: Typed) -> DataFrame:
    """key, then value, time, partition and offset of both sides, and an id that every repeat of the pair carries."""
    return joined.select(
        keys.from_bytes(F.col("key"), probe.key).alias("key"),
        F.col("probe_value").cast(probe.value).alias("probe_value"),
        F.timestamp_micros("probe_time").alias("probe_time"),
        "probe_partition",
        "probe_offset",
        F.col("build_value").cast(build.value).alias("build_value"),
        F.timestamp_micros("build_time").alias("build_time"),
        "build_partition",
        "build_offset",
        F.concat_ws("-", "probe_partition", "probe_offset", "build_partition", "build_offset").alias("id"),
    )
