"""Rows between operators: Arrow's and Spark's columns are those of the class, in the same order."""

import pyarrow as pa
import pytest

from balajoin.compute.pairs import JOINED
from balajoin.core.envelope import Addressed, Packed, defaults_of, schema_of
from balajoin.spark.schemas import spark_schema

PACKED = (
    "source:bigint,side:string,partition:int,first_offset:bigint,rows:bigint,dead:bigint,ahead:bigint,machine:string,"
    "block:binary"
)
ADDRESSED = (
    "node:bigint,section:string,source:int,watermark:bigint,now_ms:bigint,rows:bigint,bytes:bigint,"
    "note:string,block:binary"
)


@pytest.mark.parametrize(("row", "columns"), [(Packed, PACKED), (Addressed, ADDRESSED)])
def test_a_row_has_the_same_columns_in_arrow_and_in_spark(row: type, columns: str) -> None:
    assert spark_schema(schema_of(row)).simpleString() == f"struct<{columns}>"


def test_a_row_with_nothing_but_what_it_must_have_fits_its_columns() -> None:
    rows = [vars(Addressed(node=1, section="signal"))]
    assert pa.Table.from_pylist(rows, schema_of(Addressed)).to_pylist() == rows
    assert {**defaults_of(Addressed), "node": 1, "section": "signal"} == rows[0]


def test_joined_rows_take_statistics_along() -> None:
    assert spark_schema(JOINED).simpleString() == (
        "struct<key:binary,probe_value:binary,probe_time:bigint,probe_partition:int,probe_offset:bigint,"
        "build_value:binary,build_time:bigint,build_partition:int,build_offset:bigint,note:string>"
    )
