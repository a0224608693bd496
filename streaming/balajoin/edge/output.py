"""Turns results into records of the output topic."""

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, StringType

from balajoin.config.models import Output
from balajoin.core.sides import SIDES, Side
from balajoin.edge.intake import lenient
from balajoin.errors import ConfigError, Problem
from balajoin.kafka.producer import ID_HEADER


def to_kafka_columns(joined: DataFrame, output: Output) -> DataFrame:
    """The columns key, value and, if `output.id` asks for it, headers with the id, as Spark's Kafka sink takes them."""
    records = to_records(joined, output)
    if "id" not in records.columns:
        return records
    header = F.struct(F.lit(ID_HEADER).alias("key"), F.col("id").alias("value"))
    return records.select("key", "value", F.array(header).alias("headers"))


def to_records(joined: DataFrame, output: Output) -> DataFrame:
    """The columns key, value and, if `output.id` asks for it, id, all of them binary."""
    with lenient(joined.sparkSession):
        try:
            value = F.expr(output.value) if output.value else _default_value(joined)
            shaped = joined.select(
                F.col("key").cast(_key_type(joined.schema["key"].dataType)).cast("binary").alias("key"),
                value.alias("value"),
                F.col("id").cast("binary").alias("id"),
            )
        except (AnalysisException, ParseException) as error:
            message = str(error).strip().splitlines()[0]
            columns = ", ".join(joined.columns)
            raise ConfigError([Problem("output.value", message, f"an SQL expression over {columns}")]) from error
    type_ = shaped.schema["value"].dataType
    if not isinstance(type_, BinaryType | StringType):
        complaint = f"is {type_.simpleString()}, not binary or string"
        raise ConfigError([Problem("output.value", complaint, "wrap it in to_json(…) or cast it")])
    records = shaped.withColumn("value", F.col("value").cast("binary"))
    return records if output.id == "header" else records.drop("id")


def expression_problems(spark: SparkSession, joined: DataFrame, output: Output) -> list[Problem]:
    try:
        to_records(joined, output)
    except ConfigError as error:
        return list(error.problems)
    return []


def _key_type(type_: DataType) -> str:
    return "binary" if isinstance(type_, BinaryType) else "string"


def _default_value(joined: DataFrame) -> Column:
    """One JSON object. A value that is not UTF-8 text is written under `…_base64` instead."""
    return F.to_json(
        F.struct(
            F.col("id"),
            *_text("key", joined),
            *[column for side in SIDES if f"{side}_value" in joined.columns for column in _side(side, joined)],
        )
    )


def _side(side: Side, joined: DataFrame) -> list[Column]:
    return [*_text(f"{side}_value", joined), F.col(f"{side}_time")]


def _text(name: str, joined: DataFrame) -> list[Column]:
    if not isinstance(joined.schema[name].dataType, BinaryType):
        return [F.col(name)]
    text = F.col(name).cast("string")
    valid = F.is_valid_utf8(text)
    return [
        F.when(valid, text).alias(name),
        F.when(~valid, F.base64(name)).alias(f"{name}_base64"),
    ]
