"""Turns join keys of any type into bytes that are equal exactly if Spark SQL finds the keys equal, and back.

The operators compare bytes and know nothing of types. The way back gives the result its typed key.
"""

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

_MICROSECONDS = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
# Spark's own formats end at milliseconds: keys that differ would become equal.
_EXACT_TIMES = {"timestampFormat": f"{_MICROSECONDS}XXX", "timestampNTZFormat": _MICROSECONDS, "timeZone": "UTC"}

# JSON writes this for bytes that are not UTF-8, so different texts would become equal. Such keys hold bytes, not texts.
_NO_TEXT = "\N{REPLACEMENT CHARACTER}"
_PLAIN, _EXACT = "key", "bytes"


def refusal(key: DataType) -> str | None:
    """Why keys of this type cannot be joined on, or None if they can."""
    if isinstance(key, NullType):
        return "is always null"
    if isinstance(key, MapType | VariantType):
        return f"is a {key.typeName()}, which Spark cannot compare: choose a field of it"
    if isinstance(key, StringType) and not key.isUTF8BinaryCollation():
        return f"has the collation {key.collation}: join on collation_key(…) of it"
    if isinstance(key, ArrayType | StructType):
        parts = [key.elementType] if isinstance(key, ArrayType) else [field.dataType for field in key.fields]
        for part in parts:
            if isinstance(part, FloatType | DoubleType):
                return "has a floating-point number inside: cast it to decimal"
            if inner := refusal(part):
                return inner
    return None


def to_bytes(key: Column, type_: DataType) -> Column:
    if isinstance(type_, BinaryType):
        return key
    if isinstance(type_, ArrayType | StructType):
        text = _json(_PLAIN, key)
        exact = _json(_EXACT, key.cast(_without_text(type_)))
        return F.when(key.isNotNull(), F.when(F.contains(text, F.lit(_NO_TEXT)), exact).otherwise(text)).cast("binary")
    if isinstance(type_, FloatType | DoubleType):
        return (key + F.lit(0).cast(type_)).cast("string").cast("binary")  # −0.0 equals 0.0
    if isinstance(type_, TimestampType):
        return F.unix_micros(key).cast("string").cast("binary")  # a wall-clock text repeats an hour each autumn
    return key.cast("string").cast("binary")


def from_bytes(key: Column, type_: DataType) -> Column:
    if isinstance(type_, BinaryType):
        return key
    text = key.cast("string")
    if isinstance(type_, ArrayType | StructType):
        nullable = _rebuilt(type_, lambda part: part)
        inside = F.from_json(text, StructType().add(_PLAIN, nullable).add(_EXACT, _without_text(type_)), _EXACT_TIMES)
        return F.coalesce(inside.getField(_PLAIN), inside.getField(_EXACT).cast(nullable))
    if isinstance(type_, TimestampType):
        return F.timestamp_micros(text.cast("bigint"))
    if isinstance(type_, TimestampNTZType):
        return text.cast("timestamp_ntz")
    return text.cast(type_)


def _json(name: str, key: Column) -> Column:
    return F.to_json(F.struct(key.alias(name)), {"ignoreNullFields": "false", **_EXACT_TIMES})


def _without_text(type_: DataType) -> DataType:
    """The type with bytes in place of texts."""
    return _rebuilt(type_, lambda part: BinaryType() if isinstance(part, StringType) else part)


def _rebuilt(type_: DataType, change: Callable[[DataType], DataType]) -> DataType:
    """The type with changed parts, all of them nullable, because values read from JSON are."""
    if isinstance(type_, ArrayType):
        return ArrayType(_rebuilt(type_.elementType, change))
    if isinstance(type_, StructType):
        return StructType([StructField(field.name, _rebuilt(field.dataType, change)) for field in type_.fields])
    return change(type_)
