"""Values built from Arrow columns have the same bytes as those of Spark's `to_json` and `concat`."""

import base64
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balajoin.compute.pairs import PAIRS
from balajoin.core.blocks import EARLIEST_US, LATEST_US
from balajoin.core.spec import JoinType, ResultFormat
from balajoin.sinks.values import ResultEncoder, value_columns
from result_rows import UNMATCHED, row

BINARY = {"key": "binary", "probe_value": "binary", "build_value": "binary"}

NUMBERS = st.integers(0, (1 << 63) - 1)
VALUES = st.none() | st.binary(max_size=12) | st.text(max_size=12).map(lambda text: text.encode())
TIMES = st.integers(EARLIEST_US, LATEST_US)


ROWS = st.builds(
    row,
    VALUES.filter(lambda key: key is not None),
    VALUES,
    VALUES,
    probe_time=TIMES,
    build_time=TIMES,
    probe_offset=NUMBERS,
    build_offset=NUMBERS,
)


def values(rows: list[dict[str, Any]], encoder: ResultEncoder) -> list[bytes]:
    return encoder.records(pa.Table.from_pylist(rows, PAIRS)).column("value").to_pylist()


def test_the_value_is_one_json_object_without_what_is_null() -> None:
    written = values([row(b"k", b'say "hi"\n\x01\\', None)], ResultEncoder(ResultFormat("inner", BINARY)))
    assert written == [
        b'{"id":"1-20-0-3000000000","key":"k","probe_value":"say \\"hi\\"\\n\\u0001\\\\",'
        b'"probe_time":"2023-11-14T22:13:20.123Z","build_time":"1970-01-01T00:00:00.000Z"}'
    ]


def test_bytes_that_are_no_text_stand_in_base64() -> None:
    (written,) = values([row(b"\xff", b"\xed\xa0\x80", "käse".encode())], ResultEncoder(ResultFormat("inner", BINARY)))
    content = json.loads(written)
    assert content["key_base64"] == "/w=="
    assert content["probe_value_base64"] == "7aCA"
    assert content["build_value"] == "käse"


def test_a_row_without_a_match_has_nothing_of_the_other_side() -> None:
    (written,) = values([row(b"k", b"p", None, **UNMATCHED)], ResultEncoder(ResultFormat("left", BINARY)))
    assert written == b'{"id":"1-20--","key":"k","probe_value":"p","probe_time":"2023-11-14T22:13:20.123Z"}'


def test_numbers_stand_as_they_are() -> None:
    kinds = {**BINARY, "key": "literal"}
    (written,) = values([row(b"-12", None, None)], ResultEncoder(ResultFormat("inner", kinds)))
    assert json.loads(written)["key"] == -12


@given(st.lists(ROWS, min_size=1, max_size=5))
def test_json_readers_find_what_was_written(rows: list[dict[str, Any]]) -> None:
    for given_, written in zip(rows, values(rows, ResultEncoder(ResultFormat("inner", BINARY))), strict=True):
        content = json.loads(written)
        for name in BINARY:
            found = content.get(name)
            if f"{name}_base64" in content:
                assert base64.b64decode(content[f"{name}_base64"], validate=True) == given_[name]
                with pytest.raises(UnicodeDecodeError):
                    given_[name].decode()
            else:
                assert (found.encode() if found is not None else None) == given_[name]


@given(st.lists(ROWS, min_size=1, max_size=5))
def test_columns_are_put_together(rows: list[dict[str, Any]]) -> None:
    columns = ("probe_value", "build_value", "key")
    encoder = ResultEncoder(ResultFormat("inner", BINARY, columns, with_id=True))
    records = encoder.records(pa.Table.from_pylist(rows, PAIRS))
    assert records.column("key").to_pylist() == [row_["key"] for row_ in rows]
    for row_, value in zip(rows, records.column("value").to_pylist(), strict=True):
        parts = [row_[name] for name in columns]
        assert value == (None if None in parts else b"".join(parts))
    ids = [f"1-{row_['probe_offset']}-0-{row_['build_offset']}".encode() for row_ in rows]
    assert records.column("id").to_pylist() == ids


@pytest.mark.parametrize(
    ("expression", "type_", "columns"),
    [
        (None, "inner", ()),
        ("probe_value", "inner", ("probe_value",)),
        (" concat( probe_value,build_value ) ", "inner", ("probe_value", "build_value")),
        ("CONCAT(Key, ID)", "inner", ("key", "id")),
        ("build_value", "left_semi", None),
        ("probe_time", "inner", None),
        ("concat(probe_value, 'x')", "inner", None),
        ("upper(key)", "inner", None),
    ],
)
def test_only_whole_columns_need_no_spark(
    expression: str | None, type_: JoinType, columns: tuple[str, ...] | None
) -> None:
    assert value_columns(expression, type_) == columns
