import re

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from balajoin.edge.keys import refusal

JOINABLE = [
    BinaryType(),
    BooleanType(),
    DateType(),
    DayTimeIntervalType(),
    DecimalType(38, 18),
    DoubleType(),
    FloatType(),
    IntegerType(),
    LongType(),
    StringType(),
    StringType("UTF8_BINARY"),
    TimestampNTZType(),
    TimestampType(),
    ArrayType(StringType()),
    StructType().add("a", LongType()).add("b", ArrayType(BinaryType())),
    StructType(),
]

REFUSED = [
    (NullType(), "always null"),
    (MapType(StringType(), LongType()), "is a map, .* choose a field"),
    (VariantType(), "is a variant, .* choose a field"),
    (StringType("UTF8_LCASE"), "collation UTF8_LCASE: join on collation_key"),
    (StringType("UNICODE_CI"), "collation UNICODE_CI"),
    (ArrayType(FloatType()), "floating-point"),
    (ArrayType(VariantType()), "variant"),
]


@pytest.mark.parametrize("type_", JOINABLE, ids=lambda type_: type_.simpleString())
def test_comparable_types_are_joined_on(type_):
    assert refusal(type_) is None


@pytest.mark.parametrize(("type_", "reason"), REFUSED, ids=lambda each: str(each)[:30])
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_others_are_refused_however_deep_they_are(type_, reason, depth):
    for _ in range(depth):
        type_ = StructType().add("first", LongType()).add("second", ArrayType(type_))
    assert re.search(reason, refusal(type_) or "")


def test_a_double_inside_is_refused_though_one_alone_is_not():
    assert "cast it to decimal" in refusal(StructType().add("x", DoubleType()))
