"""Where records enter: Kafka's columns become key bytes, their hash, time and value, or a dead letter.

All of this is Spark SQL, which Spark compiles, so no Python code runs for each record.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, DateType, StringType, TimestampNTZType, TimestampType

from balajoin.config.models import IsolationLevel, Kafka, Stream
from balajoin.control.rejects import AHEAD
from balajoin.core.blocks import EARLIEST_US, LATEST_US
from balajoin.core.sides import Side
from balajoin.edge import keys
from balajoin.edge.attempt import attempt
from balajoin.edge.batch_time import batch_time
from balajoin.errors import ConfigError, Problem
from balajoin.kafka import client_options

KAFKA_COLUMNS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)

_JSON = "json:"
_COLUMNS = ("key", "value", "timestamp")


@dataclass(frozen=True)
class Typed:
    """The types of one stream's expressions."""

    key: DataType
    value: DataType


@contextmanager
def lenient(spark: SparkSession) -> Iterator[None]:
    """In its block, a failing cast gives null, and so a dead letter. ANSI mode would end the query at a bad record.

    An expression keeps the mode in which it was analysed.
    """
    name = "spark.sql.ansi.enabled"
    before = str(spark.conf.get(name))
    spark.conf.set(name, "false")
    try:
        yield
    finally:
        spark.conf.set(name, before)


def sql(setting: str, expression: str) -> str:
    """Resolves the `json:$.path` shorthand. A time may be ISO text or milliseconds since the epoch."""
    if not expression.startswith(_JSON):
        return expression
    path = expression.removeprefix(_JSON).strip().replace("\\", "\\\\").replace("'", "\\'")
    text = f"get_json_object(cast(value as string), '{path}')"
    if setting.endswith(".time"):
        number = f"try_cast({text} as bigint)"
        bounds = f"{EARLIEST_US // 1000} and {LATEST_US // 1000}"  # timestamp_millis fails outside of its own
        return (
            f"coalesce(timestamp_millis(if({number} between {bounds}, {number}, null)), try_cast({text} as timestamp))"
        )
    return text


def _attempted(spark: SparkSession, expression: str, column: Column) -> tuple[Column, Column]:
    """The expression's column, null where the expression fails on a record, and a column that tells if it succeeded."""
    if expression.startswith(_JSON) or expression in _COLUMNS:  # these cannot fail
        return column, F.lit(True)
    tried = attempt(spark, column)
    return F.get(tried, F.lit(0)), tried.isNotNull()


def records(
    spark: SparkSession,
    topic: str,
    kafka: Kafka,
    starting_offsets: str,
    max_rows_per_batch: int | None = None,
    isolation_level: IsolationLevel = "read_uncommitted",
) -> DataFrame:
    """Kafka's columns of one topic, as a stream.

    With `read_committed`, Spark plans a batch up to the first open transaction, and the consumer skips aborted records.
    The join writes its own topics without transactions, so it reads them uncommitted: nothing may hold them back.
    """
    reader = (
        spark.readStream.format("kafka")
        .options(**client_options.spark_reader_options(kafka))
        .option("subscribe", topic)
        .option("startingOffsets", starting_offsets)
        .option("includeHeaders", "true")
        .option("kafka.isolation.level", isolation_level)
    )
    if max_rows_per_batch:
        reader = reader.option("maxOffsetsPerTrigger", max_rows_per_batch)
    return reader.load()


def types(spark: SparkSession, probe: Stream, build: Stream) -> tuple[Typed, Typed]:
    """The types of both streams' expressions. Raises a ConfigError that lists every problem in them."""
    problems: list[Problem] = []
    found = {}
    empty = spark.createDataFrame([], KAFKA_COLUMNS)
    with lenient(spark):
        for name, stream in (("probe", probe), ("build", build)):
            for part in ("key", "time", "value"):
                setting = f"{name}.{part}"
                try:
                    found[setting] = empty.select(F.expr(sql(setting, getattr(stream, part)))).schema[0].dataType
                except (AnalysisException, ParseException) as error:
                    problems.append(Problem(setting, _first_sentence(error), "an SQL expression over Kafka's columns"))
    for setting, type_ in found.items():
        if complaint := _TYPE_CHECKS[setting.partition(".")[2]](type_):
            problems.append(Problem(setting, complaint))
    if not problems and found["probe.key"] != found["build.key"]:
        problems.append(
            Problem(
                "build.key",
                f"is {found['build.key'].simpleString()}, but probe.key is {found['probe.key'].simpleString()}",
                "cast one to the type of the other",
            )
        )
    if problems:
        raise ConfigError(problems)
    return (
        Typed(found["probe.key"], found["probe.value"]),
        Typed(found["build.key"], found["build.value"]),
    )


def rows(
    records: DataFrame, side: Side, stream: Stream, typed: Typed, max_ahead_us: int, hash_bits: int = 64
) -> DataFrame:
    """One row for each record. If key or time is missing, or the time is too far ahead, `dead` holds the record.

    In that column, `ahead` tells by how many microseconds the time is ahead of the batch's time, if that is too far. A
    repeated batch has the same time, so it finds the same. `hash_bits` below 64 forces collisions, for tests.
    """
    with lenient(records.sparkSession):
        expressions = {part: F.expr(sql(f"{side}.{part}", getattr(stream, part))) for part in ("key", "time", "value")}
        attempted = partial(_attempted, records.sparkSession)
        value, has_value = attempted(stream.value, expressions["value"].cast("binary"))
        key, _ = attempted(stream.key, keys.to_bytes(expressions["key"], typed.key))
        key = F.when(has_value, key)
        time, _ = attempted(stream.time, F.unix_micros(expressions["time"].cast("timestamp")))
        time = _sane(time)
        ahead = time - batch_time()
        too_far = ahead > max_ahead_us
        dead = key.isNull() | time.isNull() | too_far
        original = F.struct(F.when(too_far, ahead).alias(AHEAD), "key", "value", "headers")
        return records.select(
            hash_of(key, hash_bits).alias("hash"),
            time.alias("time"),
            "partition",
            "offset",
            key.alias("key"),
            value.alias("value"),
            # One column, because each column costs Spark's Arrow writer time even where it is null (to read and pack 1M
            # rows took the JVM 2.8 s, and 3.2 s with four columns). Text, because a list is ten times slower (120 s,
            # not 12).
            F.when(dead, F.to_json(original, {"ignoreNullFields": "true"})).alias("dead"),
        )


def _sane(time: Column) -> Column:
    """Null for a time outside the years 1 to 9999, which is a mistake and would expire all stored rows."""
    return F.when(time.between(EARLIEST_US, LATEST_US), time)


def hash_of(key: Column, bits: int = 64) -> Column:
    full = F.xxhash64(key)
    return full if bits == 64 else full.bitwiseAND(F.lit((1 << bits) - 1))


def _time_complaint(type_: DataType) -> str | None:
    if isinstance(type_, TimestampType | TimestampNTZType | DateType):
        return None
    return f"is {type_.simpleString()}, not a timestamp: use timestamp_millis(…) or try_to_timestamp(…)"


def _value_complaint(type_: DataType) -> str | None:
    if isinstance(type_, BinaryType | StringType):
        return None
    return f"is {type_.simpleString()}, not binary or string: use to_json(…) or cast it"


_TYPE_CHECKS: dict[str, Callable[[DataType], str | None]] = {
    "key": keys.refusal,
    "time": _time_complaint,
    "value": _value_complaint,
}


def _first_sentence(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
