"""Join keys of any type as bytes, such that two keys are equal in Spark SQL exactly if their bytes are.

Comparing bytes spares the operators all knowledge of types, and the way back gives the result its typed key.
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
        text = F.to_json(
            F.struct(key.cast(_without_text(type_)).alias("key")), {"ignoreNullFields": "false", **_EXACT_TIMES}
        )
        return F.when(key.isNotNull(), text).cast("binary")
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
        inside = F.from_json(text, StructType().add("key", _without_text(type_)), _EXACT_TIMES).getField("key")
        return inside.cast(_rebuilt(type_, lambda part: part))
    if isinstance(type_, TimestampType):
        return F.timestamp_micros(text.cast("bigint"))
    if isinstance(type_, TimestampNTZType):
        return text.cast("timestamp_ntz")
    return text.cast(type_)


def _without_text(type_: DataType) -> DataType:
    """With bytes for texts: JSON cannot write texts that are no UTF-8, and would make them all equal."""
    return _rebuilt(type_, lambda part: BinaryType() if isinstance(part, StringType) else part)


def _rebuilt(type_: DataType, change: Callable[[DataType], DataType]) -> DataType:
    """The type with other parts, all of them nullable, as what comes out of JSON is."""
    if isinstance(type_, ArrayType):
        return ArrayType(_rebuilt(type_.elementType, change))
    if isinstance(type_, StructType):
        return StructType([StructField(field.name, _rebuilt(field.dataType, change)) for field in type_.fields])
    return change(type_)
