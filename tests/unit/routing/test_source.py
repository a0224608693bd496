import json
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, get_args

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balajoin.control.announcements import ANNOUNCED, announced_places
from balajoin.control.encoding import read_signal
from balajoin.core import codec
from balajoin.core.blocks import decode, encode, longs
from balajoin.core.envelope import Addressed, schema_of
from balajoin.core.event_time import BEGINNING
from balajoin.core.hashing import home, homes
from balajoin.core.messages import Stamp
from balajoin.errors import StateError
from balajoin.kafka.producer import Record
from balajoin.routing import policies, router
from balajoin.routing.router import Router
from balajoin.routing.rule import LEAST_SKEWED_ROWS, Measure, PolicyName, SkewRule
from balajoin.routing.source import RoutingOutcome, Source
from balajoin.spark.labels import node_labels
from balajoin.spark.worker import machine
from oracle import Row
from strategies import KEYS, LARGEST_ORDINARY_OBJECT, SECOND, hash_of, row_lists, rows_of, table

HOUR = 3600 * SECOND
LATENESS = 5 * SECOND

times = st.integers(-100 * SECOND, 100 * SECOND)
row_blocks = st.lists(row_lists(times, min_size=1, max_size=12), min_size=1, max_size=4)
node_counts = st.integers(1, 7)


def source(
    nodes: int,
    state: bytes | None = None,
    policy: PolicyName = "hash",
    lease: int = 60 * SECOND,
    measure: Measure = "rows",
) -> Source:
    make_policy = partial(policies.make, policy, nodes, 0, SkewRule(keys=(hash_of(b"hot"),), measure=measure))
    return Source.restore(0, nodes, LATENESS, lease, make_policy, state)


def numbered(blocks: list[list[Row]]) -> list[list[Row]]:
    """Numbers the offsets across blocks, as Kafka does."""
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
    parcels = source(nodes).route(0, {"probe": [table(rows) for rows in blocks]}).parcels
    assert [rows_of(*parcel) for parcel in parcels["probe"]] == at_home(blocks, nodes)
    assert all(part.num_rows for parcel in parcels["probe"] for part in parcel)
    assert not any(parcels["build"])
    assert not any(parcels["fragment"])


def test_both_sides_of_a_key_have_the_same_home():
    rows = table(Row(key, 0, b"", 0, 0) for key in KEYS)
    parcels = source(5).route(0, {"probe": [rows], "build": [rows]}).parcels
    assert [rows_of(*parcel) for parcel in parcels["probe"]] == [rows_of(*parcel) for parcel in parcels["build"]]


@given(st.lists(row_lists(times, min_size=1, max_size=5), max_size=6), node_counts, st.sampled_from(["probe", "build"]))
def test_the_watermark_is_the_newest_time_less_the_lateness_over_restarts(batches, nodes, side):
    state = None
    seen: list[int] = []
    assert source(nodes).watermark(side) == BEGINNING
    for rows in batches:
        routing = source(nodes, state)
        routing.route(0, {side: [table(rows)]})
        seen += [row.time_us for row in rows]
        assert routing.watermark(side) == max(seen) - LATENESS
        assert routing.watermark("build" if side == "probe" else "probe") == BEGINNING
        state = routing.state()
        assert source(nodes, state).watermark(side) == routing.watermark(side)
        assert source(nodes, state).state() == state


@pytest.mark.parametrize(
    ("policy", "measure"), [*((name, "rows") for name in get_args(PolicyName)), ("bala-join", "work")]
)
@given(data=st.data())
def test_a_router_that_runs_again_sends_the_same_rows_to_the_same_nodes(policy, measure, data):
    """However its input is cut into blocks: nodes that follow different attempts at a router lose and repeat no row."""
    nodes, state = data.draw(node_counts), None
    for batch in range(3):
        keys = data.draw(st.lists(st.sampled_from([b"hot", b"warm", *KEYS]), min_size=1, max_size=400))
        rows = {side: [Row(key, at, b"v", 0, at) for at, key in enumerate(keys)] for side in ("build", "probe")}
        routed = []
        for _ in range(2):
            cuts = sorted({0, len(keys), *data.draw(st.lists(st.integers(0, len(keys)), max_size=3))})
            again = source(nodes, state, policy, measure=measure)
            blocks = {side: [table(of[a:b]) for a, b in pairwise(cuts)] for side, of in rows.items()}
            outcome = again.route(batch * 1000, blocks)
            sent = {name: [rows_of(*parcel) for parcel in parcels] for name, parcels in outcome.parcels.items()}
            routed.append((sent, outcome.signals, again.state()))
        assert routed[0] == routed[1]
        state = routed[0][2]


# --- signals ----------------------------------------------------------------------------------------------------------


def hot_rows(count: int, time: int) -> list[pa.Table]:
    return [table(Row(b"hot", time, b"v", 0, offset) for offset in range(count))]


def nodes_told(routed: RoutingOutcome) -> set[int]:
    return {signal.node for signal in routed.signals}


@pytest.mark.parametrize("policy", ["bala-join", "bppr", "pnr"])
def test_nodes_that_get_skewed_rows_are_signalled_to_their_home_and_no_others(policy):
    routed = source(4, policy=policy).route(0, {"probe": hot_rows(400, HOUR)})
    reached = {node for node, parcel in enumerate(routed.parcels["probe"]) if parcel}
    assert reached == {0, 1, 2, 3}
    assert nodes_told(routed) == reached - {home(hash_of(b"hot"), 4)}
    for signal in routed.signals:
        assert (signal.hash, signal.key, signal.fragment) == (hash_of(b"hot"), b"hot", False)
        assert signal.until >= HOUR + 60 * SECOND
    assert len(routed.signals) == routed.statistics.signals == 3
    assert sum(routed.statistics.skewed_rows) >= 400 - LEAST_SKEWED_ROWS


def test_rows_that_go_home_are_no_signal():
    rows = table(Row(b"%d" % n, HOUR, b"v", 0, n) for n in range(400))
    routed = source(4, policy="bala-join").route(0, {"probe": [rows]})
    assert routed.signals == []
    assert sum(routed.statistics.skewed_rows) == 0


def test_who_keeps_skewed_rows_at_one_node_still_tells_all():
    routed = source(4, policy="prpd").route(0, {"probe": hot_rows(100, HOUR)})
    assert sum(bool(parcel) for parcel in routed.parcels["probe"]) == 1
    assert nodes_told(routed) == {0, 1, 2, 3} - {home(hash_of(b"hot"), 4)}


def test_fragments_go_to_all_nodes_of_a_column_and_are_signalled_as_such():
    routed = source(6, policy="sfr").route(0, {"probe": hot_rows(30, HOUR)})  # a grid of two rows with three nodes each
    assert not any(routed.parcels["probe"])
    by_node = [Counter(rows_of(*parcel)) for parcel in routed.parcels["fragment"]]
    assert by_node[:3] == by_node[3:]
    assert sum(map(len, by_node)) == 2 * 30
    assert all(signal.fragment for signal in routed.signals)
    assert nodes_told(routed) == set(range(6)) - {home(hash_of(b"hot"), 6)}


def test_a_lease_is_renewed_when_half_of_it_is_over_also_after_a_restart():
    state = None
    told = []
    for second in (0, 0, 20, 29, 31, 40, 80):
        routing = source(2, state, "bppr")
        routed = routing.route(0, {"probe": hot_rows(50, HOUR + second * SECOND)})
        told.append([signal.until - HOUR for signal in routed.signals])
        state = routing.state()
    minute = 60 * SECOND
    assert told == [[minute], [], [], [], [31 * SECOND + minute], [], [80 * SECOND + minute]]


def test_every_row_sent_away_is_covered_by_a_signal():
    rng = random.Random(1)
    routing = source(3, policy="bppr", lease=10 * SECOND)
    until: dict[int, int] = {}
    clock = HOUR
    for _ in range(60):
        clock += rng.choice([0, SECOND, 4 * SECOND, 50 * SECOND])
        tables = [table(Row(b"hot", clock - rng.randrange(LATENESS), b"v", 0, n) for n in range(rng.randrange(1, 9)))]
        routed = routing.route(0, {"probe": tables})
        for signal in routed.signals:
            until[signal.node] = signal.until
        for node, parcel in enumerate(routed.parcels["probe"]):
            if node != home(hash_of(b"hot"), 3):
                assert all(row.time_us <= until[node] for row in rows_of(*parcel))


def test_leases_that_no_row_can_need_any_more_are_forgotten():
    routing = source(2, policy="bppr")
    routing.route(0, {"probe": hot_rows(50, HOUR)})
    assert routing.leases
    routing.route(0, {"probe": [table([Row(b"cold", 2 * HOUR, b"v", 0, 99)])]})
    assert not routing.leases


def test_foreign_and_damaged_state_is_refused():
    with pytest.raises(StateError, match="source state is damaged"):
        source(2, b"nonsense")
    with pytest.raises(StateError, match="found node state"):
        source(2, codec.encode("node", 1, {"latest": 1}))
    with pytest.raises(StateError, match="version 99"):
        source(2, codec.encode("source", 99, {"latest": 1}))


def test_another_policy_begins_anew_and_time_goes_on():
    routing = source(2, policy="bppr")
    routing.route(0, {"probe": hot_rows(50, HOUR)})
    changed = source(2, routing.state(), "hash")
    assert changed.watermark("probe") == HOUR - LATENESS


# --- the router, with a state like Spark's ---------------------------------------------------------------------------


class GroupState:
    """The part of Spark's GroupState that the router uses."""

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
    """Leaves out `settle`, which freezes the garbage collector and is meant for Spark's workers."""
    monkeypatch.setattr(router, "settle", lambda: None)


@dataclass(frozen=True)
class Published:
    """A publisher that only collects the records."""

    records: list[tuple[str, bytes]] = field(default_factory=list)

    def publish(self, topic: str, records: Iterable[Record], *, whole: bool, note_place: Any) -> None:
        assert whole
        for record in records:
            note_place(record, (3, len(self.records)))
            self.records.append((topic, record.value))


def packed(blocks: list[list[Row]], side: str = "build") -> list[pd.DataFrame]:
    """One frame per block."""
    return [
        pd.DataFrame(
            {
                "source": 11,
                "side": side,
                "partition": 7,
                "first_offset": rows[0].offset,
                "machine": machine(),
                "block": [encode(table(rows))],
            }
        )
        for rows in blocks
    ]


def routed(
    nodes: int, blocks: list[list[Row]], state: GroupState, policy: PolicyName = "hash", side: str = "build"
) -> tuple[pd.DataFrame, list[tuple[str, bytes]]]:
    return routed_frames(nodes, packed(blocks, side), state, policy)


def routed_frames(
    nodes: int, frames: list[pd.DataFrame], state: GroupState, policy: PolicyName = "hash"
) -> tuple[pd.DataFrame, list[tuple[str, bytes]]]:
    published = Published()
    router = Router(policy, SkewRule(keys=(hash_of(b"hot"),)), nodes, LATENESS, 60 * SECOND, "control", published)
    sent = list(router.route(iter(frames), state, Stamp("join", 5)))
    return pd.concat(sent, ignore_index=True), published.records


@given(row_blocks, node_counts, st.randoms(use_true_random=False))
def test_a_router_addresses_every_row_to_its_home(blocks, nodes, shuffler: random.Random):
    blocks = numbered(blocks)
    frame, published = routed(nodes, blocks, GroupState())
    assert not published
    assert list(frame.columns) == schema_of(Addressed).names
    by_node = [[decode(row.block) for row in frame.itertuples() if row.node == label] for label in node_labels(nodes)]
    assert [rows_of(*tables) for tables in by_node] == at_home(blocks, nodes)
    assert list(frame["rows"]) == [decode(block).num_rows for block in frame["block"]]
    shuffled = list(blocks)
    shuffler.shuffle(shuffled)  # a shuffle delivers them in any order
    pd.testing.assert_frame_equal(routed(nodes, shuffled, GroupState())[0], frame)


def test_only_blocks_from_other_machines_count_as_fetched() -> None:
    frames = packed([[Row(b"k", at, bytes(10 * at), 0, at)] for at in range(3)])
    frames[1]["machine"], frames[2]["machine"] = "another", "a third"
    sent, _ = routed_frames(2, frames, GroupState())
    (note,) = [json.loads(note) for note in sent["note"] if note]
    assert note["fetched_bytes"] == sum(len(frame["block"][0]) for frame in frames[1:])


@given(row_blocks, node_counts)
def test_every_node_hears_of_the_watermark(blocks, nodes):
    state = GroupState()
    for batch in (blocks[:1], blocks[1:]):
        if batch:
            frame, _ = routed(nodes, numbered(batch), state)
    assert set(frame["node"]) == set(node_labels(nodes))
    assert set(frame["watermark"]) == {newest(blocks) - LATENESS}
    assert set(frame["now_ms"]) == {1_700_000_000_000}
    assert set(frame["section"]) == {"build"}
    assert set(frame["source"]) == {7}


def test_a_router_without_input_says_nothing():
    state = GroupState()
    router = Router("hash", SkewRule(), 3, LATENESS, 1, "control", Published())
    assert list(router.route(iter([]), state, Stamp("join", 5))) == []
    assert not state.exists


def test_a_large_parcel_leaves_as_several_blocks():
    rows = [Row(b"k", offset, bytes(9 << 20), 0, offset) for offset in range(8)]
    frame, _ = routed(1, [rows[:4], rows[4:]], GroupState())
    assert len(frame) > 2
    tables = [decode(block) for block in frame["block"]]
    assert pa.concat_tables(tables).column("offset").to_pylist() == list(range(8))
    assert max(map(len, frame["block"])) < 33 << 20


def test_blocks_leave_so_small_that_the_jvm_takes_them_as_ordinary_objects():
    rows = [Row(b"k%d" % (offset % 100), offset, bytes(80), 0, offset) for offset in range(40_000)]
    frame, _ = routed(2, [rows[:20_000], rows[20_000:]], GroupState())
    assert sum(frame["rows"]) == len(rows)
    assert max(map(len, frame["block"])) <= LARGEST_ORDINARY_OBJECT // 2


def test_a_router_publishes_its_signals_and_tells_of_itself():
    rows = [Row(b"hot", HOUR, b"v", 0, offset) for offset in range(100)]
    frame, published = routed(2, [rows], GroupState(), "bppr", "probe")
    at = home(hash_of(b"hot"), 2)
    ((topic, value),) = published
    assert topic == "control"
    stamp, signal = read_signal(value.decode())
    assert stamp == Stamp("join", 5)
    assert (signal.hash, signal.node) == (hash_of(b"hot"), 1 - at)
    assert json.loads(value)["home"] == at
    notes = [json.loads(note) for note in frame["note"] if note]
    assert [(note["source"], sum(note["skewed_rows"]), note["signals"]) for note in notes] == [(7, 100, 1)]
    assert notes[0]["hot_keys"][0]["hash"] == hash_of(b"hot")
    assert notes[0]["hot_keys"][0]["key"] == "hot"
    (announced,) = frame[frame["section"] == ANNOUNCED].itertuples()
    assert announced.node == node_labels(2)[at]
    assert announced_places(announced.block) == [(3, 0)]
    own = node_labels(2)[7 % 2]
    sent = frame[frame["section"] != ANNOUNCED]
    assert all((size == 0) == (label == own) for label, size in zip(sent["node"], sent["bytes"], strict=True))
