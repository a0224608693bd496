"""Nodes write the same bytes as Spark's `to_json` and `concat`."""

import random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from balajoin.compute.pairs import PAIRS
from balajoin.core.blocks import EARLIEST_US, LATEST_US
from balajoin.core.spec import ResultFormat
from balajoin.sinks.values import ResultEncoder
from result_rows import UNMATCHED, row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from balajoin.core.spec import JoinType

PIECES = [
    b"a",
    b'"',
    b"\\",
    b"/",
    b"\n\r\t\b\f",
    b"\x00\x1f\x7f",
    "é€𝄞\u2028".encode(),
    b"\xff",
    b"\xc0\x80",
    b"\xed\xa0\x80",
]
TEXTS = PIECES[:7]


def rows(pieces: list[bytes], keys: list[bytes], count: int = 300) -> list[dict[str, object]]:
    rng = random.Random(5)

    def value() -> bytes | None:
        return None if rng.random() < 0.1 else b"".join(rng.choices(pieces, k=rng.randrange(4)))

    made = [
        row(
            rng.choice(keys),
            value(),
            value(),
            probe_time=rng.choice([EARLIEST_US, LATEST_US, -1, rng.randrange(EARLIEST_US, LATEST_US)]),
            probe_offset=rng.choice([0, 9, 10, (1 << 63) - 1]),
        )
        for _ in range(count)
    ]
    return [{**one, **UNMATCHED} if at % 7 == 0 else one for at, one in enumerate(made)]


@pytest.mark.parametrize("type_", ["full", "left_semi"])
@pytest.mark.parametrize(
    ("key", "kind", "keys"),
    [
        ("binary", "binary", PIECES),
        ("string", "text", TEXTS),
        ("bigint", "literal", [b"0", b"-9223372036854775808", b"77"]),
        ("boolean", "literal", [b"true", b"false"]),
    ],
)
@pytest.mark.parametrize("value", [None, "probe_value", "concat(key, probe_value, id)"])
def test_values_are_those_of_spark(
    spark: "SparkSession", type_: "JoinType", key: str, kind: str, keys: list[bytes], value: str | None
) -> None:
    from pyspark.sql.types import _parse_datatype_string

    from balajoin.config.models import Output
    from balajoin.edge import output, results
    from balajoin.edge.intake import Typed
    from balajoin.sinks.values import value_columns

    table = pa.Table.from_pylist(rows(PIECES if kind == "binary" else TEXTS, keys), PAIRS)
    side = Typed(_parse_datatype_string(key), _parse_datatype_string("string" if kind == "text" else "binary"))
    named = results.named(spark.createDataFrame(table), side, side, type_)
    expected = output.to_records(named, Output(topic="out", value=value, id="header")).toArrow().to_pylist()

    kinds = {"key": kind, **dict.fromkeys(("probe_value", "build_value"), "text" if kind == "text" else "binary")}
    columns = value_columns(value, type_)
    assert columns is not None
    encoder = ResultEncoder(ResultFormat(type_, kinds, columns, with_id=True))
    assert encoder.records(table).to_pylist() == expected
