"""Values of every type and all kinds of bad records, in the edge's expressions on a real Spark."""

import base64
import json
import random
from collections.abc import Iterator
from functools import reduce
from typing import TYPE_CHECKING, Any

import pytest

from balajoin.config.models import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Different values could become the same bytes, so each type has extreme values and their neighbours.
VALUES = {
    "boolean": ["true", "false"],
    "tinyint": ["-128y", "127y", "0y"],
    "bigint": ["9223372036854775807", "cast('-9223372036854775808' as bigint)", "0"],
    "float": ["float('nan')", "float('1e-45')", "float(0.1)", "float('-0')", "float(0)"],
    "double": ["double('nan')", "-double('nan')", "double('-inf')", "0d", "-0d", "1e-320d", "0.1d", "double(0.1f)"],
    "decimal": [f"cast('{x}' as decimal(38, 18))" for x in ("1e-18", "-99999999999999999999.9", "0", "-0", "0.1")],
    "date": ["date'0001-01-01'", "date_add(date'0001-01-01', -400)", "date_add(date'0001-01-01', -800)",
             "date_add(date'9999-12-31', 400)"],
    "timestamp": [f"timestamp_micros({x})" for x in (-(9 * 10**18), 9 * 10**18, 0, 1, -1, 1_700_000_000_000_000)],
    "timestamp_ntz": [f"cast(timestamp_micros({x}) as timestamp_ntz)" for x in (-(9 * 10**18), 9 * 10**18, 1)],
    "days": ["interval '1 0:0:0' day to second", "interval '-1 0:0:0.000001' day to second"],
    "months": ["interval '1-2' year to month", "interval '-0-1' year to month"],
    "text": ["cast(x'ff' as string)", "cast(x'fe' as string)", "cast(x'efbfbd' as string)", "''", "' '", "'null'"],
    "bytes": ["x''", "x'00'", "x'0000'", "x'ff'"],
}  # fmt: skip
NESTED = "array(named_struct('a', array({0}, null), 'b', {0}))"


def literals() -> Iterator[list[str]]:
    """Lists of values of one type: those above, and the same inside arrays and structs."""
    for name, values in VALUES.items():
        yield values
        if name not in ("float", "double"):  # refused inside arrays and structs
            yield [NESTED.format(value) for value in [*values, f"cast(null as {type_of(name)})"]]


def type_of(name: str) -> str:
    return {
        "decimal": "decimal(38, 18)",
        "days": "interval day to second",
        "months": "interval year to month",
        "text": "string",
        "bytes": "binary",
    }.get(name, name)


def test_keys_are_equal_exactly_if_their_bytes_are_and_come_back_as_they_were(spark: "SparkSession") -> None:
    from pyspark.sql import functions as F

    from balajoin.edge import intake, keys

    def compared(values: list[str]) -> "DataFrame":
        found = spark.range(1).select(F.explode(F.array(*map(F.expr, values))).alias("k"))
        type_ = found.schema["k"].dataType
        assert keys.refusal(type_) is None
        found = found.withColumn("b", keys.to_bytes(F.col("k"), type_))
        found = found.withColumn("same", keys.from_bytes(F.col("b"), type_).eqNullSafe(F.col("k")))
        one, other = (found.select(*(F.col(name).alias(f"{name}{n}") for name in found.columns)) for n in (1, 2))
        return one.crossJoin(other).select(
            F.lit(values[0]).alias("of"),
            "same1",
            F.expr("(k1 <=> k2) = (b1 <=> b2)").alias("agree"),
            F.expr("b1 is null").alias("dead"),
        )

    with intake.lenient(spark):
        whole = reduce(lambda one, other: one.unionAll(other), map(compared, literals()))
        found = whole.groupBy("of", "same1", "agree", "dead").count().collect()
    assert sum(row["count"] for row in found) > 400
    assert [row for row in found if not row.same1 or not row.agree or row.dead] == []


RUBBISH_COUNT = 400
TEXT = "cast(value as string)"
EXPRESSIONS = [
    # on bad records some give null, some fail
    ("key", "timestamp", "value"),
    ("json:$.a", "json:$.a", "value"),
    ("json:$.a.b[0]", "json:$[0]", "value"),
    (f"cast({TEXT} as int)", f"timestamp_millis(cast({TEXT} as bigint))", "decode(value, 'utf-8')"),
    (f"element_at(array(1, 2), cast({TEXT} as int))", f"timestamp_seconds(cast({TEXT} as bigint))", "value"),
    (f"cast(raise_error({TEXT}) as string)", f"to_timestamp({TEXT})", "aes_decrypt(value, '0000111122223333')"),
    ("decode(value, 'utf-8')", "to_timestamp(decode(value, 'utf-8'))", "upper(decode(value, 'utf-8'))"),
    (f"from_json({TEXT}, 'a string').a", f"from_json({TEXT}, 'a timestamp', map('mode', 'FAILFAST')).a", "value"),
    (f"parse_json({TEXT})::string", f"cast(variant_get(parse_json({TEXT}), '$.a', 'timestamp') as timestamp)", "value"),
    (f"from_csv({TEXT}, 'a int').a", f"make_timestamp(cast({TEXT} as int), 1, 1, 0, 0, 0)", f"unbase64({TEXT})"),
    (f"array(cast({TEXT} as decimal(38, 18)))", f"date_add(date'2020-01-01', cast({TEXT} as int))", "value"),
    ("headers[0].key", f"timestamp_micros(cast({TEXT} as bigint) * 1000)", "to_json(headers)"),
    (f"xpath_string({TEXT}, 'a/b')", f"to_timestamp({TEXT}, 'yyyy-MM-dd')", f"url_decode({TEXT})"),
    (f"substr({TEXT}, 2)", f"to_date({TEXT}, {TEXT})", f"format_string({TEXT}, 1)"),
    (f"cast(conv({TEXT}, 10, 16) as string)", f"from_utc_timestamp(timestamp, {TEXT})", f"encode({TEXT}, 'us-ascii')"),
]  # fmt: skip


def rubbish() -> list[tuple[Any, ...]]:
    rng = random.Random(5)
    texts = [b"9223372036854775807", b"-9223372036854775808", b"12", b"0", b"", b"\xff\xfe", b"\x00", b"nan", b"1e999",
             b'{"a": 9223372036854775807}', b'{"a": 1700000000000}', b'{"a": "2023-11-14T22:13:20Z"}',
             b"2147483647", b"-2147483648",
             b'{"a": "+99999-01-01"}',
             b"[" * 100_000, b'{"a":' * 5000, b'{"a": "\\ud800"}', b"<a><b>x</b></a>", b"<", b"%zz", b"(", b"%n%n%n%s",
             b"Europe/Nowhere", b"9" * 5000, b'{"a": {"b": [1]}}', b"2023-11-14", b"x" * 3_000_000]  # fmt: skip
    alphabet = b'{}[]":,\\a0123456789-+.eE \xff\xc3\x28\x00'
    texts += [bytes(rng.choices(alphabet, k=rng.randrange(40))) for _ in range(RUBBISH_COUNT - len(texts) - 1)]
    return [(text and text[:9], text, n) for n, text in enumerate([*texts, None])]


@pytest.mark.parametrize(("key", "time", "value"), EXPRESSIONS, ids=range(len(EXPRESSIONS)))
def test_no_value_makes_an_expression_end_the_query(spark: "SparkSession", key: str, time: str, value: str) -> None:
    from pyspark.sql import functions as F

    from balajoin.edge import intake

    stream = Stream(topic="t", key=key, time=time, value=value)
    typed, _ = intake.types(spark, stream, stream)
    records = spark.createDataFrame(rubbish(), "key binary, value binary, offset bigint").select(
        "key", "value", F.lit("t").alias("topic"), F.lit(0).alias("partition"), "offset",
        F.current_timestamp().alias("timestamp"), F.lit(0).alias("timestampType"),
        F.expr("array(named_struct('key', 'h', 'value', value))").alias("headers"),
    )  # fmt: skip
    rows = intake.rows(records, "probe", stream, typed, max_ahead_us=1 << 62)
    found = rows.select("key", "time", "offset", "dead").collect()
    assert len(found) == RUBBISH_COUNT
    originals = {n: text for _, text, n in rubbish()}
    for row in found:
        if row.key is None or row.time is None:
            written = json.loads(row.dead).get("value")
            assert (None if written is None else base64.b64decode(written)) == originals[row.offset]


def test_a_dead_record_says_only_what_it_holds_whatever_the_session_does_with_nulls(spark: "SparkSession") -> None:
    from balajoin.edge import intake

    stream = Stream(topic="t")
    typed, _ = intake.types(spark, stream, stream)
    name = "spark.sql.jsonGenerator.ignoreNullFields"
    before = spark.conf.get(name)
    spark.conf.set(name, "false")
    try:
        records = spark.createDataFrame([(None, b"v", "t", 0, 1, None, 0, None)], intake.KAFKA_COLUMNS)
        (row,) = intake.rows(records, "probe", stream, typed, max_ahead_us=1).collect()
    finally:
        spark.conf.set(name, before)
    assert json.loads(row.dead) == {"value": base64.b64encode(b"v").decode()}
