"""One node against the join's definition, over random schedules of arrivals, batches, failures and damage."""

import os
import shutil
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from balajoin.compute import node, pairs, store
from balajoin.compute.exchange import Arrival, LateRows, NodeInputs
from balajoin.compute.node import Node
from balajoin.compute.pairs import PAIRS
from balajoin.core import blocks
from balajoin.core.blocks import ROWS
from balajoin.core.event_time import BEGINNING
from balajoin.core.sides import SIDES, Side
from balajoin.core.spec import JoinSpec
from balajoin.errors import StateError
from examples import examples
from oracle import Result, Row, interval_join
from strategies import KEYS, SECOND, Memory, results_of, rows_of, table

HOUR = 3600 * SECOND
NEVER_IDLE = 1 << 40
MEMORY_DISK = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # the model writes some 10,000 files
PINS = {"join.nodes": 4, "probe.key": "key"}

Source = tuple[Side, int]


def spec(**changes) -> JoinSpec:
    """An interval of 10 s before and 5 s after, 2 s of lateness, one source per side."""
    default = JoinSpec(1, 10 * SECOND, 5 * SECOND, 2 * SECOND, NEVER_IDLE, {"probe": 1, "build": 1}, PINS)
    return replace(default, **changes)


@dataclass
class Feed:
    """The sources as a node sees them: it gets a watermark from each source that sent any row in the batch."""

    lateness_us: int
    newest: dict[Source, int] = field(default_factory=dict)
    offsets: Counter[Source] = field(default_factory=Counter)
    pending: dict[Source, list[Row]] = field(default_factory=dict)

    def send(self, side: Side, source: int, time: int, key: bytes | None = b"k", value: bytes | None = None) -> Row:
        """Sends a row. A row without a key goes to another node, and this node learns only its time."""
        at = side, source
        row = Row(key or b"", time, value, source, self.offsets[at])
        self.offsets[at] += 1
        self.newest[at] = max(time, self.newest.get(at, time))
        self.pending.setdefault(at, []).extend([row] if key is not None else [])
        return row

    def arrivals(self, now_ms: int, hashes: int = 1 << 32) -> list[Arrival]:
        """The rows sent since the last call. Rows of a source come in one or two blocks."""
        found = []
        for (side, source), rows in self.pending.items():
            half = len(rows) // 2 if len(rows) > 4 else 0
            watermark = self.newest[side, source] - self.lateness_us
            for part in (rows[:half], rows[half:]) if half else (rows,):
                found.append(Arrival(side, source, watermark, now_ms, [table(part, hashes)]))
        self.pending = {}
        return found


@dataclass
class Cluster:
    """Keeps one node's state and blocks of the last committed batch, as Spark does."""

    spec: JoinSpec
    cache: Path
    state: bytes | None = None
    durable: Memory = field(default_factory=Memory)
    node: Node | None = None
    found: Counter[Result] = field(default_factory=Counter)
    batches: int = 0

    def restart(self) -> None:
        self.node = None

    def watermark(self, side: Side) -> int:
        return self._on(self.durable.copy()).watermark(side)

    def fail(self, arrivals: list[Arrival], after: int | None) -> None:
        """Makes an attempt that leaves only local files. It dies after `after` results, or at its end."""
        results = self._on(self.durable.copy()).process(self.batches, NodeInputs(arrivals))
        for count, _ in enumerate(results):
            if after is not None and count >= after:
                break

    def batch(self, arrivals: list[Arrival]) -> list[LateRows]:
        self.node = self.node or self._on(self.durable)
        results = self.node.process(self.batches, NodeInputs(arrivals))
        tables = list(results)
        self.batches += 1
        for joined in tables:
            joined.validate(full=True)
            assert joined.num_rows > 0
            assert joined.schema == PAIRS
        self.found += results_of(tables)
        self.state = results.outcome.state
        return list(results.outcome.late)

    def _on(self, durable: Memory) -> Node:
        return Node(self.spec, self.state, durable, self.cache, 0)

    def files(self, suffix: str = "") -> list[Path]:
        return sorted(path for path in self.cache.rglob(f"*{suffix}") if path.is_file())


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(spec(), tmp_path)


# --- the model test ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Send:
    """A row of `source`, out of order by the share `jitter` of the lateness. A row without a key is for another node.

    A `straggler` is later than allowed. Not all schedules have stragglers.
    """

    source: int
    key: bytes | None
    jitter: float
    straggler: bool


@dataclass(frozen=True)
class Batch:
    """Rows of a batch, `passed` of event time and `pause_ms` of the clock after the batch before.

    `failures` has an entry for each failed attempt: the number of results after which it dies. Then, if `restart`, the
    node is built again, after `damage` to its local files.
    """

    sends: tuple[Send, ...]
    passed: int = 0
    pause_ms: int = 0
    failures: tuple[int | None, ...] = ()
    restart: bool = True
    damage: str = "none"


@dataclass(frozen=True)
class Schedule:
    spec: JoinSpec
    skews: tuple[int, ...]  # the offset of each source's times
    stragglers: bool
    hashes: int
    pairs_at_once: int
    piece_bytes: int
    fanout: int
    batches: tuple[Batch, ...]

    @property
    def sources(self) -> list[Source]:
        return [(side, source) for side in SIDES for source in range(self.spec.sources[side])]


DAMAGES = ("none", "none", "none", "folder", "delete", "truncate", "overwrite", "catalog")


def usually(value: object, *others: object) -> st.SearchStrategy:
    return st.sampled_from([value, value, value, *others])


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    before = draw(st.sampled_from([10, -2, 0, 1, 30])) * SECOND
    width = draw(st.sampled_from([15, 0, 1, 40])) * SECOND
    sources: dict[Side, int] = {side: draw(st.integers(1, 3)) for side in SIDES}
    total = sum(sources.values())
    sends = st.builds(
        Send,
        source=st.integers(0, total - 1),
        key=usually(KEYS[0], KEYS[1], KEYS[4], None),
        jitter=usually(0.0, 0.3, 1.0),
        straggler=usually(False, False, False, True),
    )
    batches = st.builds(
        Batch,
        sends=st.lists(sends, min_size=draw(st.sampled_from([0, 4])), max_size=10).map(tuple),
        passed=st.sampled_from([SECOND, 0, 1, 3 * SECOND, 10 * SECOND, 25 * SECOND]),
        pause_ms=st.sampled_from([300, 0, 600, 5000, 3_600_000]),
        failures=usually((), (None,), (0, 1), (2,)),
        restart=st.booleans(),
        damage=st.sampled_from(DAMAGES),
    )
    return Schedule(
        spec=JoinSpec(
            nodes=1,
            before_us=before,
            after_us=width - before,
            lateness_us=draw(st.sampled_from([0, 2, 20])) * SECOND,
            idle_after_ms=draw(st.sampled_from([NEVER_IDLE, 1000])),
            sources=sources,
            pins=PINS,
        ),
        skews=tuple(draw(st.tuples(*[usually(0, -SECOND, -30 * SECOND, -5 * HOUR)] * total))),
        stragglers=draw(usually(False, True)),
        hashes=draw(st.sampled_from([1 << 32, 1, 3])),
        pairs_at_once=draw(st.sampled_from([1 << 16, 1, 3])),
        piece_bytes=draw(usually(1 << 20, 400)),
        fanout=draw(st.sampled_from([8, 2])),
        batches=tuple(draw(st.lists(batches, min_size=draw(st.sampled_from([1, 5])), max_size=10))),
    )


@settings(max_examples=examples(300))
@given(schedules())
def test_every_pair_is_found_once_whatever_happens(schedule):
    with tempfile.TemporaryDirectory(dir=MEMORY_DISK) as folder, ExitStack() as stack:
        stack.enter_context(patch.object(pairs, "_MAX_PAIRS", schedule.pairs_at_once))
        stack.enter_context(patch.object(store, "_FANOUT", schedule.fanout))
        small = lambda tables: blocks.pieces(tables, schedule.piece_bytes)  # noqa: E731
        stack.enter_context(patch.object(node, "pieces", small))
        Model(schedule, Path(folder)).run()


class Model:
    """Runs a node through a schedule, and checks its results against the definition of the join."""

    def __init__(self, schedule: Schedule, cache: Path) -> None:
        self.schedule = schedule
        self.spec = schedule.spec
        self.cluster = Cluster(schedule.spec, cache)
        self.feed = Feed(schedule.spec.lateness_us)
        self.now_ms = 1_700_000_000_000
        self.clock = 1_000 * HOUR
        self.batch_of: dict[tuple[Side, Row], int] = {}
        self.late: set[tuple[Side, Row]] = set()
        self.batches = 0
        self.watermarks = dict.fromkeys(SIDES, BEGINNING)
        self.older_probes = [BEGINNING] * 3

    def run(self) -> None:
        for batch in self.schedule.batches:
            self.clock += batch.passed
            self.now_ms += batch.pause_ms
            for each in batch.sends:
                self.send(each)
            self.batch(batch)
        self.check_pairs()
        self.check_all_expires()

    def send(self, send: Send) -> None:
        side, source = self.schedule.sources[send.source]
        time = self.clock + self.schedule.skews[send.source] - int(send.jitter * self.spec.lateness_us)
        if send.straggler and self.schedule.stragglers:
            time -= self.spec.lateness_us + 20 * SECOND
        self.feed.send(side, source, time, send.key, b"v%d" % self.batches)

    def batch(self, batch: Batch) -> None:
        arrivals = self.feed.arrivals(self.now_ms, self.schedule.hashes)
        if not arrivals:
            return  # Spark calls a node only if it has input
        if batch.failures or batch.restart:
            self.cluster.restart()
            damage(self.cluster, batch.damage)
        for results in batch.failures:
            self.cluster.fail(arrivals, results)
        self.check_batch(arrivals, self.cluster.batch(arrivals))

    def check_batch(self, arrivals: list[Arrival], late: list[LateRows]) -> None:
        previous = self.watermarks
        arrived = {side: rows_of(*(rows for a in arrivals if a.side == side for rows in a.rows)) for side in SIDES}
        for side in SIDES:
            self.batch_of.update(((side, row), self.batches) for row in arrived[side])
            reported = [row for each in late if each.side == side for row in rows_of(each.rows)]
            assert Counter(reported) == Counter(row for row in arrived[side] if row.time_us < previous[side])
            self.late.update((side, row) for row in reported)
        assert all(each.watermark == previous[each.side] for each in late)
        if self.spec.idle_after_ms == NEVER_IDLE and not self.schedule.stragglers:
            assert not late
        assert self.cluster.node is not None
        self.watermarks = {side: self.cluster.node.watermark(side) for side in SIDES}
        self.check_watermarks(previous)
        self.check_stored({**previous, "probe": self.older_probes[0]})
        self.older_probes = [*self.older_probes[1:], previous["probe"]]
        self.batches += 1

    def check_watermarks(self, previous: dict[Side, int]) -> None:
        for side, count in self.spec.sources.items():
            heard = [self.feed.newest.get((side, source)) for source in range(count)]
            slowest = BEGINNING if None in heard else min(heard) - self.spec.lateness_us
            assert self.watermarks[side] >= max(previous[side], slowest)
            if self.spec.idle_after_ms == NEVER_IDLE:
                assert self.watermarks[side] == slowest

    def check_stored(self, previous: dict[Side, int]) -> None:
        """Rows that can still match are stored, and rows that expired a slice ago are not.

        Build rows stay for three batches longer, and are never evicted in the batch in which they came.
        """
        edges = {
            "probe": previous["build"] - self.spec.after_us,
            "build": previous["probe"] - self.spec.before_us,
        }
        stored: set[tuple[Side, Row]] = set()
        for block in self.cluster.durable.values():
            rows, side = store.with_shelf(block)
            stored.update((side, row) for row in rows_of(rows))
            newest = max(row.time_us for row in rows_of(rows))
            is_new = side == "build" and self.batch_of[side, rows_of(rows)[0]] == self.batches
            assert is_new or newest >= edges[side] - self.spec.slice_us
        alive = {(side, row) for side, row in self.batch_of if row.time_us >= edges[side]}
        assert alive <= stored

    def check_pairs(self) -> None:
        """Only pairs of a late row with a row of an earlier batch may be missing."""
        found = self.cluster.found
        rows = {side: [row for at, row in self.batch_of if at == side] for side in SIDES}
        expected = interval_join(rows["probe"], rows["build"], self.spec.before_us, self.spec.after_us)
        assert set(found.values()) <= {1}
        assert set(found) <= expected
        missing = expected - set(found)
        for probe, build in missing:
            ends = ("probe", probe), ("build", build)
            first, second = sorted(ends, key=self.batch_of.__getitem__)
            assert second in self.late
            assert self.batch_of[first] < self.batch_of[second]
        later = sum(self.batch_of["probe", probe] != self.batch_of["build", build] for probe, build in found)
        event(f"pairs of two batches: {'none' if not later else 'a few' if later < 20 else 'many'}")
        event(f"late rows: {bool(self.late)}, missed pairs: {bool(missing)}")

    def check_all_expires(self) -> None:
        for _ in range(5):  # build rows are evicted by the watermark of four batches ago
            self.clock += 100 * HOUR
            for side, source in self.schedule.sources:
                self.feed.send(side, source, self.clock, key=None)
            self.cluster.restart()
            self.cluster.batch(self.feed.arrivals(self.now_ms))
        assert self.cluster.durable == {}
        self.cluster.watermark("probe")  # opens the folder, which removes unused files
        assert self.cluster.node is not None
        assert [path.suffix for path in self.cluster.node.store._folder.path.iterdir()] == [".catalog"]


def damage(cluster: Cluster, kind: str) -> None:
    """Damages every second file, so that some runs stay intact."""
    if kind == "folder":
        shutil.rmtree(cluster.cache, ignore_errors=True)
    elif kind == "catalog":
        for path in cluster.files(".catalog"):
            path.write_text(path.read_text().replace("rows", "sows"))
    elif kind != "none":
        for path in [*cluster.files(".rows"), *cluster.files(".index")][::2]:
            if kind == "delete":
                path.unlink()
            elif kind == "truncate":
                os.truncate(path, path.stat().st_size // 2)
            elif kind == "overwrite":
                path.write_bytes(bytes(path.stat().st_size))
                os.utime(path, ns=(1, 1))  # the kernel's clock may give both writes the same time


# --- single cases -----------------------------------------------------------------------------------------------------


def each_way(first: Side) -> Side:
    return "build" if first == "probe" else "probe"


@pytest.mark.parametrize("restart", [True, False])
def test_duplicates_meet_each_other(cluster, restart):
    feed = Feed(2 * SECOND)
    for batch in range(3):
        for _ in range(2):
            feed.send("probe", 0, HOUR, value=b"same")
            feed.send("build", 0, HOUR, value=b"same")
        cluster.batch(feed.arrivals(batch))
        if restart:
            cluster.restart()
    assert len(cluster.found) == 6 * 6
    assert set(cluster.found.values()) == {1}


@pytest.mark.parametrize("first", SIDES)
@pytest.mark.parametrize(("off", "found"), [(-11, False), (-10, True), (5, True), (6, False)])
@pytest.mark.parametrize("unit", [1, SECOND])
def test_the_intervals_ends_belong_to_it_whichever_side_is_first(tmp_path, first, off, found, unit):
    cluster = Cluster(spec(before_us=10 * unit, after_us=5 * unit), tmp_path)
    feed = Feed(2 * SECOND)
    times = {"probe": HOUR, "build": HOUR + off * unit}
    for side in (first, each_way(first)):
        feed.send(side, 0, times[side])
        cluster.batch(feed.arrivals(0))
        cluster.restart()
    assert cluster.found.total() == found


@pytest.mark.parametrize("stored_side", SIDES)
@pytest.mark.parametrize("early", [0, 1])
def test_a_row_at_the_edge_of_eviction_still_matches(cluster, stored_side, early):
    """Only a row exactly at the watermark still matches the stored row. A microsecond older, the row is evicted."""
    other = each_way(stored_side)
    reach = cluster.spec.after_us if stored_side == "probe" else cluster.spec.before_us
    watermark = HOUR
    feed = Feed(cluster.spec.lateness_us)
    feed.send(stored_side, 0, watermark - reach - early)
    feed.send(other, 0, watermark + cluster.spec.lateness_us, key=None)
    cluster.batch(feed.arrivals(0))
    cluster.restart()
    assert cluster.watermark(other) == watermark
    for _ in range(1 if stored_side == "probe" else 4):  # the last of these batches evicts by that watermark
        feed.send(other, 0, watermark, key=None)
        cluster.batch(feed.arrivals(0))
        cluster.restart()
    assert len(cluster.durable) == 1 - early
    feed.send(other, 0, watermark)
    assert cluster.batch(feed.arrivals(0)) == []
    assert cluster.found.total() == 1 - early


def test_a_batch_joins_before_it_evicts(cluster):
    """Eviction uses the watermark of the batch before, so a row that was on time when it was sent is joined."""
    feed = Feed(0)
    feed.send("probe", 0, HOUR)
    feed.send("build", 0, HOUR)
    cluster.batch(feed.arrivals(0))
    feed.send("build", 0, HOUR + 5 * SECOND)
    feed.send("build", 0, 9 * HOUR, key=None)
    cluster.batch(feed.arrivals(0))
    assert cluster.found.total() == 2


def test_late_rows_are_reported_with_the_watermark_and_on_time_ones_are_not(cluster):
    feed = Feed(2 * SECOND)
    feed.send("probe", 0, HOUR)
    feed.send("build", 0, 2 * HOUR)
    assert cluster.batch(feed.arrivals(0)) == []
    late = feed.send("probe", 0, HOUR - 2 * SECOND - 1, b"late")
    feed.send("probe", 0, HOUR - 2 * SECOND, b"just in time")
    feed.send("probe", 0, 3 * HOUR, b"new")
    very_late = feed.send("build", 0, HOUR, b"very late")
    feed.send("build", 0, 3 * HOUR, b"new")
    found = {each.side: each for each in cluster.batch(feed.arrivals(0))}
    assert rows_of(found["probe"].rows) == [late]
    assert found["probe"].watermark == HOUR - 2 * SECOND
    assert rows_of(found["build"].rows) == [very_late]
    assert found["build"].watermark == 2 * HOUR - 2 * SECOND


def test_a_late_row_joins_what_is_there(cluster):
    feed = Feed(0)
    feed.send("probe", 0, HOUR)
    feed.send("build", 0, HOUR + 6 * SECOND, key=None)
    cluster.batch(feed.arrivals(0))
    feed.send("build", 0, HOUR)
    assert len(cluster.batch(feed.arrivals(0))) == 1
    assert cluster.found.total() == 1


def test_a_row_behind_one_of_its_own_batch_is_not_late(cluster):
    feed = Feed(0)
    feed.send("probe", 0, 5 * HOUR)
    feed.send("probe", 0, HOUR)
    assert cluster.batch(feed.arrivals(0)) == []


def test_a_source_that_lags_by_hours_has_no_late_rows(tmp_path):
    cluster = Cluster(spec(sources={"probe": 2, "build": 1}, idle_after_ms=1000), tmp_path)
    feed = Feed(2 * SECOND)
    sent = []
    for batch in range(20):
        time = 100 * HOUR + batch * HOUR
        feed.send("probe", 0, time, b"fast")
        sent.append(feed.send("probe", 1, time - 7 * HOUR, b"slow"))
        feed.send("build", 0, time, b"fast")
        sent.append(feed.send("build", 0, time - SECOND, b"fast"))
        if batch % 2:  # one source misses every second batch, less than a second
            feed.pending.pop(("probe", 1))
        assert cluster.batch(feed.arrivals(batch * 400)) == []
        assert cluster.watermark("probe") <= time - 7 * HOUR - 2 * SECOND
        cluster.restart()
    assert cluster.found.total() == 20 * 2


def test_an_idle_source_lets_others_go_on_and_is_late_when_it_returns(tmp_path):
    cluster = Cluster(spec(sources={"probe": 2, "build": 1}, idle_after_ms=1000), tmp_path)
    feed = Feed(0)
    feed.send("probe", 1, HOUR)
    for batch in range(5):
        feed.send("probe", 0, (2 + batch) * HOUR)
        cluster.batch(feed.arrivals(batch * 400))
        cluster.restart()
    assert cluster.watermark("probe") == 6 * HOUR
    returned = feed.send("probe", 1, HOUR + 1)
    feed.send("probe", 0, 7 * HOUR)
    late = cluster.batch(feed.arrivals(2000))
    assert [rows_of(each.rows) for each in late] == [[returned]]
    assert cluster.watermark("probe") == 6 * HOUR


def test_a_source_never_heard_of_holds_expiry_back(tmp_path):
    cluster = Cluster(spec(sources={"probe": 1, "build": 2}), tmp_path)
    feed = Feed(0)
    for batch in range(5):
        feed.send("probe", 0, batch * HOUR)
        feed.send("build", 0, batch * HOUR)
        cluster.batch(feed.arrivals(batch))
        cluster.restart()
    assert cluster.watermark("build") == BEGINNING
    feed.send("build", 1, 0)
    assert cluster.batch(feed.arrivals(9)) == []
    assert cluster.found.total() == 6


@pytest.mark.parametrize(
    ("pins", "message"),
    [
        ({"join.nodes": 8, "probe.key": "key"}, "join.nodes is 8, but the checkpoint was made with 4"),
        ({"join.nodes": 4, "probe.key": "value"}, "probe.key is 'value', but the checkpoint was made with 'key'"),
    ],
)
def test_a_changed_pin_is_refused(cluster, tmp_path, pins, message):
    feed = Feed(0)
    feed.send("probe", 0, HOUR)
    cluster.batch(feed.arrivals(0))
    with pytest.raises(StateError, match=message):
        Node(spec(pins=pins), cluster.state, cluster.durable, tmp_path, 0)
    Node(spec(), cluster.state, cluster.durable, tmp_path, 0)


def test_damaged_state_is_refused(cluster, tmp_path):
    with pytest.raises(StateError, match="the node state is damaged"):
        Node(spec(), b"nonsense", cluster.durable, tmp_path, 0)


def test_no_row_is_written_twice_and_state_stays_small(cluster):
    """`Memory` refuses to write a block twice. So only the head could grow, and it does not."""
    feed = Feed(2 * SECOND)
    sizes = []
    for batch in range(30):
        for number in range(20):
            feed.send("probe", 0, HOUR + batch * SECOND, b"p%d" % number)
            feed.send("build", 0, HOUR + batch * SECOND, b"b%d" % number)
        cluster.batch(feed.arrivals(batch * 400))
        cluster.restart()
        assert cluster.state is not None
        sizes.append(len(cluster.state))
    assert max(sizes) <= min(sizes[10:]) + 20


def test_results_of_large_values_come_in_small_tables(cluster, monkeypatch):
    monkeypatch.setattr(pairs, "_MAX_PAIRS_BYTES", 10_000)
    feed = Feed(0)
    for _ in range(20):
        feed.send("probe", 0, HOUR, value=b"p" * 1000)
        feed.send("build", 0, HOUR, value=b"b" * 1000)
    node = Node(cluster.spec, None, cluster.durable, cluster.cache, 0)
    results = list(node.process(0, NodeInputs(feed.arrivals(0))))
    assert results_of(results).total() == 20 * 20
    assert max(joined.nbytes for joined in results) < 12_000


def test_nodes_of_one_executor_do_not_disturb_each_other(tmp_path):
    """They share the cache folder, and each node clears only its own part."""
    nodes = [Memory() for _ in range(3)]
    states: list[bytes | None] = [None] * 3
    for batch in range(4):
        for number, durable in enumerate(nodes):
            feed = Feed(0)
            feed.send("probe", 0, HOUR, b"n%d" % number)
            feed.send("build", 0, HOUR, b"n%d" % number)
            node = Node(spec(), states[number], durable, tmp_path, number)
            assert node.store.rebuilt_blocks == 0
            results = node.process(batch, NodeInputs(feed.arrivals(batch)))
            assert results_of(results).total() == 2 * batch + 1
            states[number] = results.outcome.state


def test_a_copy_of_the_checkpoint_goes_its_own_way(cluster, tmp_path):
    """Two queries start from one state on one machine. Neither uses the local files of the other."""
    feed = Feed(0)
    feed.send("probe", 0, HOUR, b"both")
    cluster.batch(feed.arrivals(0))
    twin = Cluster(cluster.spec, cluster.cache, cluster.state, cluster.durable.copy())
    for each, key in ((cluster, b"one"), (twin, b"two"), (cluster, b"one"), (twin, b"two")):
        each.restart()
        feed = Feed(0)
        feed.send("probe", 0, HOUR, key)
        feed.send("build", 0, HOUR, key)
        feed.send("build", 0, HOUR, b"both")
        each.batch(feed.arrivals(0))
    for each, key in ((cluster, b"one"), (twin, b"two")):
        assert {probe.key for probe, _ in each.found} == {b"both", key}
        assert each.found.total() == 2 + 4


def test_a_failed_first_batch_leaves_no_files_for_ever(cluster):
    feed = Feed(0)
    feed.send("probe", 0, HOUR)
    arrivals = feed.arrivals(0)
    cluster.fail(arrivals, None)
    (abandoned,) = {path.parent for path in cluster.files()}
    week_ago = time.time() - 7 * 86_400
    os.utime(abandoned, (week_ago, week_ago))
    cluster.batch(arrivals)
    assert not abandoned.parent.exists()
    assert len({path.parent for path in cluster.files()}) == 1


def test_an_empty_block_is_no_rows(cluster):
    arrival = Arrival("probe", 0, HOUR, 0, [ROWS.empty_table()])
    assert cluster.batch([arrival, replace(arrival, section="build", rows=[])]) == []
    assert cluster.watermark("probe") == cluster.watermark("build") == HOUR
    assert cluster.durable == {}
