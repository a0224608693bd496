"""Turns the skewed keys of the settings into hashes, by which routers recognise them."""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from balajoin.config.models import Skew
from balajoin.core.spec import JoinSpec
from balajoin.edge import intake, keys
from balajoin.errors import ConfigError, Problem
from balajoin.routing.rule import SkewRule


def rule(spark: SparkSession, skew: Skew, key_type: DataType, spec: JoinSpec, hash_bits: int = 64) -> SkewRule:
    return SkewRule(
        threshold=skew.threshold,
        balance=skew.balance,
        counters=skew.counters,
        half_life_ms=skew.half_life_ms,
        keys=hashes(spark, skew, key_type, hash_bits),
        first_pass_rows=skew.first_pass_rows,
        measure=skew.measure,
        pair_cost=skew.pair_cost if spec.kind.pairs else 0,
        weights=skew.weights,
        window_us=spec.before_us + spec.after_us,
        sources=spec.sources["build"],
        may_fragment=not spec.kind.awaited,
    )


def hashes(spark: SparkSession, skew: Skew, key_type: DataType, hash_bits: int = 64) -> tuple[int, ...]:
    """Casts each key's text to the type of the join's key expression, as `cast('…' as …)` would, and hashes it."""
    if not skew.keys:
        return ()
    with intake.lenient(spark):
        texts = spark.createDataFrame([(text,) for text in skew.keys], "text string")
        key = keys.to_bytes(F.col("text").cast(key_type), key_type)
        found = [row.hash for row in texts.select(intake.hash_of(key, hash_bits).alias("hash")).collect()]
        unreadable = texts.filter(key.isNull()).count()
    if unreadable:
        raise ConfigError([Problem("join.skew.keys", f"{unreadable} of them are no {key_type.simpleString()}")])
    return tuple(found)
