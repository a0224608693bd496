import random

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balajoin import codec
from balajoin.blocks import decode, encode, longs
from balajoin.compute.watermarks import BEGINNING
from balajoin.errors import StateError
from balajoin.hashing import homes
from balajoin.labels import node_labels
from balajoin.routing import policies, router
from balajoin.routing.router import ROUTED, Router
from balajoin.routing.source import Source
from oracle import Row
from strategies import KEYS, SECOND, row_lists, rows_of, table

LATENESS = 5 * SECOND

times = st.integers(-100 * SECOND, 100 * SECOND)
row_blocks = st.lists(row_lists(times, min_size=1, max_size=12), min_size=1, max_size=4)
node_counts = st.integers(1, 7)


def source(nodes: int, state: bytes | None = None) -> Source:
    return Source.restore("probe", policies.make("hash", nodes), nodes, LATENESS, state)


def numbered(blocks: list[list[Row]]) -> list[list[Row]]:
    """Offsets go on from block to block, as in Kafka."""
    offsets = iter(range(10_000))
    return [[row._replace(offset=next(offsets)) for row in rows] for rows in blocks]


def newest(blocks: list[list[Row]]) -> int:
    return max(row.time_us for rows in blocks for row in rows)


def at_home(blocks: list[list[Row]], nodes: int) -> list[list[Row]]:
    rows = [row for block in blocks for row in block]
    home = homes(longs(table(rows), "hash"), nodes)
    return [[row for row, at in zip(rows, home, strict=True) if at == node] for node in range(nodes)]


# --- a source, without Spark ------------------------------------------------------------------------------------------


@given(row_blocks, node_counts)
def test_every_row_goes_to_its_home_once_and_in_order(blocks, nodes):
    blocks = numbered(blocks)
    parcels = source(nodes).route([table(rows) for rows in blocks], newest(blocks))
    assert [rows_of(*parcel) for parcel in parcels] == at_home(blocks, nodes)
    assert all(part.num_rows for parcel in parcels for part in parcel)


def test_both_sides_of_a_key_have_the_same_home():
    rows = table(Row(key, 0, b"", 0, 0) for key in KEYS)
    parcels = {
        side: Source(side, policies.make("hash", 5), 5, LATENESS).route([rows], 0) for side in ("probe", "build")
    }
    assert [rows_of(*parcel) for parcel in parcels["probe"]] == [rows_of(*parcel) for parcel in parcels["build"]]


@given(st.lists(row_lists(times, min_size=1, max_size=5), max_size=6), node_counts)
def test_the_watermark_is_the_newest_time_less_the_lateness_over_restarts(batches, nodes):
    state = None
    seen: list[int] = []
    assert source(nodes).watermark == BEGINNING
    for rows in batches:
        routing = source(nodes, state)
        routing.route([table(rows)], newest([rows]))
        seen += [row.time_us for row in rows]
        assert routing.watermark == max(seen) - LATENESS
        state = routing.state()
        assert source(nodes, state).watermark == routing.watermark
        assert source(nodes, state).state() == state


def test_foreign_and_damaged_state_is_refused():
    with pytest.raises(StateError, match="source state is damaged"):
        source(2, b"nonsense")
    with pytest.raises(StateError, match="found node state"):
        source(2, codec.encode("node", 1, {"latest": 1}))
    with pytest.raises(StateError, match="version 99"):
        source(2, codec.encode("source", 99, {"latest": 1}))


# --- the router around it, with a state as Spark hands it in ---------------------------------------------------------


class GroupState:
    """As much of Spark's as the router uses."""

    def __init__(self) -> None:
        self.value: tuple[bytes] | None = None

    @property
    def exists(self) -> bool:
        return self.value is not None

    @property
    def get(self) -> tuple[bytes]:
        assert self.value is not None
        return self.value

    def update(self, value: tuple[bytes]) -> None:
        assert [type(part) for part in value] == [bytes]
        self.value = value

    def getCurrentProcessingTimeMs(self) -> int:  # noqa: N802
        return 1_700_000_000_000


@pytest.fixture(autouse=True)
def _unsettled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Freezing the garbage collector is for Spark's workers."""
    monkeypatch.setattr(router, "settle", lambda: None)


def packed(blocks: list[list[Row]]) -> list[pd.DataFrame]:
    """A frame a block."""
    return [
        pd.DataFrame(
            {
                "source": 11,
                "side": "build",
                "partition": 7,
                "first_offset": rows[0].offset,
                "latest": newest([rows]),
                "block": [encode(table(rows))],
            }
        )
        for rows in blocks
    ]


def routed(nodes: int, blocks: list[list[Row]], state: GroupState) -> pd.DataFrame:
    (frame,) = Router("hash", nodes, LATENESS).route(iter(packed(blocks)), state)
    return frame


@given(row_blocks, node_counts, st.randoms(use_true_random=False))
def test_a_router_addresses_every_row_to_its_home(blocks, nodes, shuffler: random.Random):
    blocks = numbered(blocks)
    frame = routed(nodes, blocks, GroupState())
    assert list(frame.columns) == [column.split()[0] for column in ROUTED.split(", ")]
    by_node = [[decode(row.block) for row in frame.itertuples() if row.node == label] for label in node_labels(nodes)]
    assert [rows_of(*tables) for tables in by_node] == at_home(blocks, nodes)
    assert list(frame["rows"]) == [decode(block).num_rows for block in frame["block"]]
    shuffled = list(blocks)
    shuffler.shuffle(shuffled)  # as a shuffle delivers them
    pd.testing.assert_frame_equal(routed(nodes, shuffled, GroupState()), frame)


@given(row_blocks, node_counts)
def test_every_node_hears_of_the_watermark(blocks, nodes):
    state = GroupState()
    for batch in (blocks[:1], blocks[1:]):
        if batch:
            frame = routed(nodes, numbered(batch), state)
    assert set(frame["node"]) == set(node_labels(nodes))
    assert set(frame["watermark"]) == {newest(blocks) - LATENESS}
    assert set(frame["now_ms"]) == {1_700_000_000_000}
    assert set(frame["side"]) == {"build"}
    assert set(frame["source"]) == {7}


def test_a_router_without_input_says_nothing():
    state = GroupState()
    assert list(Router("hash", 3, LATENESS).route(iter([]), state)) == []
    assert not state.exists


def test_a_large_parcel_leaves_as_several_blocks():
    rows = [Row(b"k", offset, bytes(9 << 20), 0, offset) for offset in range(8)]
    frame = routed(1, [rows[:4], rows[4:]], GroupState())
    assert len(frame) > 2
    tables = [decode(block) for block in frame["block"]]
    assert pa.concat_tables(tables).column("offset").to_pylist() == list(range(8))
    assert max(map(len, frame["block"])) < 33 << 20
