import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from balajoin.core.blocks import ROWS, concat, decode, encode, encode_as_column, partition_by, pieces
from balajoin.errors import BlockError
from oracle import Row
from strategies import row_lists, rows_of, table

times = st.integers(-(1 << 63), (1 << 63) - 1)
A_TABLE = table(Row(b"key" * (i % 3), 1000 + i, None if i % 4 == 0 else b"v" * i, 2, i) for i in range(9))
A_BLOCK = encode(A_TABLE, None)


@st.composite
def views(draw: st.DrawFn) -> pa.Table:
    """Tables as they occur: slices of other tables, with several chunks."""
    parts = [table(rows) for rows in draw(st.lists(row_lists(times, max_size=12), max_size=3))]
    whole = pa.concat_tables([ROWS.empty_table(), *parts])
    start = draw(st.integers(0, whole.num_rows))
    return whole.slice(start, draw(st.integers(0, whole.num_rows - start)))


@given(views())
def test_a_block_holds_its_rows(rows):
    found = decode(encode(rows))
    found.validate(full=True)
    assert found.equals(rows)


@given(views(), st.sampled_from([None, "lz4"]))
def test_a_block_in_a_column_is_the_one_written_alone(rows, compression):
    column = encode_as_column(rows, compression)
    column.validate(full=True)
    assert column.to_pylist() == [encode(rows, compression)]
    assert decode(column[0].as_buffer()).equals(rows)


@given(st.binary(max_size=300))
@example(b"")
@example(A_BLOCK + b"x")
def test_foreign_bytes_are_refused(data):
    with pytest.raises(BlockError, match="block"):
        decode(data)


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([("hash", pa.int64())]),
        ROWS.remove(0),
        ROWS.append(pa.field("more", pa.int8())),
        ROWS.set(1, pa.field("time", pa.timestamp("us"))),
        ROWS.set(4, pa.field("key", pa.large_binary())),
    ],
    ids=["other", "a column less", "a column more", "another type", "a wider type"],
)
def test_blocks_of_other_columns_are_refused(schema):
    with pytest.raises(BlockError, match="other columns"):
        decode(encode(schema.empty_table()))


def test_a_truncated_block_is_refused_or_whole():
    """A block that lacks only Arrow's end-of-stream mark is complete."""
    for length in range(len(A_BLOCK)):
        _refused_or_equal(A_BLOCK[:length])


@given(st.sets(st.integers(0, 8 * len(A_BLOCK) - 1), min_size=1, max_size=3))
@example({8 * A_BLOCK.index((1003).to_bytes(8, "little"))})  # a time
def test_a_block_with_flipped_bits_is_refused_or_equal(bits):
    damaged = bytearray(A_BLOCK)
    for bit in bits:
        damaged[bit // 8] ^= 1 << (bit % 8)
    _refused_or_equal(bytes(damaged))


def _refused_or_equal(data: bytes) -> None:
    try:
        found = decode(data)
    except BlockError:
        return
    found.validate(full=True)  # before any code follows its offsets
    assert found.equals(decode(A_BLOCK))


def test_concat_of_nothing_is_an_empty_table():
    assert concat([]).equals(ROWS.empty_table())


@given(st.lists(views(), max_size=4), st.integers(1, 1500))
def test_pieces_hold_all_rows_in_order_and_stay_below_their_bound(tables, max_bytes):
    found = list(pieces(tables, max_bytes))
    assert rows_of(*found) == rows_of(*tables)
    for piece in found:
        assert all(column.num_chunks == 1 for column in piece.columns)
        bitmap = (piece.num_rows + 7) // 8  # concatenating rows with and without nulls may add a bitmap
        assert piece.num_rows == 1 or 0 < piece.nbytes <= max_bytes + bitmap


def test_a_row_above_the_bound_is_a_piece_of_its_own():
    small, large = Row(b"k", 1, b"s", 0, 0), Row(b"k", 1, b"L" * 10_000, 0, 1)
    found = pieces([table([small, small, large, small, small])], 1000)
    assert [piece.num_rows for piece in found] == [2, 1, 2]


def test_small_tables_become_one_piece():
    tables = [table([Row(b"k", 1, b"v", 0, offset)]) for offset in range(1000)]
    assert [piece.num_rows for piece in pieces(tables)] == [1000]


@given(row_lists(times, max_size=40), st.integers(1, 9), st.data())
def test_partition_by_keeps_order_and_all_rows(rows, targets, data):
    target = data.draw(st.lists(st.integers(0, targets - 1), min_size=len(rows), max_size=len(rows)))
    found = partition_by(table(rows), np.array(target, np.int32), targets)
    expected = [[row for row, at in zip(rows, target, strict=True) if at == part] for part in range(targets)]
    assert [rows_of(part) for part in found] == expected


def test_partition_by_takes_slices():
    rows = [Row(b"k%d" % i, i, b"v" * i, 0, i) for i in range(10)]
    odd, even = partition_by(table(rows).slice(3, 6), np.array([1, 0] * 3, np.int32), 2)
    assert rows_of(odd) == rows[4:9:2]
    assert rows_of(even) == rows[3:9:2]
