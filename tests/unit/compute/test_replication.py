"""Home and guest: what a node sends to another, and what it does when nothing comes back."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from balajoin.compute.exchange import Arrival, NodeInputs, Outcome
from balajoin.compute.guest import ASK_AGAIN_AFTER, Guest
from balajoin.compute.home import Home
from balajoin.compute.node import Node
from balajoin.compute.state import NodeState
from balajoin.compute.store import BlockStore
from balajoin.control.encoding import HEADER, read_replica, shipment_records
from balajoin.core.hashing import home
from balajoin.core.messages import ANY_PLAN, Grant, Part, Shipment, Signal, Stamp
from balajoin.core.spec import JoinSpec
from oracle import Row
from strategies import SECOND, Memory, hash_of, results_of, table

HOUR = 3600 * SECOND
NODES = 2
SPEC = JoinSpec(NODES, 10 * SECOND, 5 * SECOND, 0, 1 << 40, {"probe": 1, "build": 1}, {})
KEY = next(key for key in (b"a", b"b", b"c", b"d") if home(hash_of(key), NODES) == 0)
HASH = hash_of(KEY)


def rows(count: int, time: int = HOUR, first: int = 0):
    return table(Row(KEY, time, b"v", 0, first + n) for n in range(count))


def parts_of(shipment: Shipment, batch: int) -> list[Part]:
    written = shipment_records(Stamp("j", batch), shipment)
    return [read_replica(dict(record.headers)[HEADER].decode(), record.value)[1] for record in written]


class Pair:
    """Node 0, the key's home, and node 1, its guest. The test passes on what they publish."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.states: list[bytes | None] = [None, None]
        self.durables = [Memory(), Memory()]
        self.found: Counter = Counter()
        self.batch = 0

    def run(self, number: int, arrivals=(), signals=(), parts=(), plan: str = "") -> Outcome:
        node = Node(replace(SPEC, plan=plan), self.states[number], self.durables[number], self.folder, number)
        results = node.process(self.batch, NodeInputs(arrivals, signals, parts))
        self.found += results_of(results)
        self.states[number] = results.outcome.state
        return results.outcome

    def uncovered(self, number: int) -> bool:
        """Whether probe rows at a node wait for build rows from their home."""
        return bool(Node(SPEC, self.states[number], self.durables[number], self.folder, number)._guest.uncovered)


def arrival(section, time, *tables) -> Arrival:
    return Arrival(section, 0, time, 0, tables)


def without_an_answer(pair: Pair, batches: int) -> Signal:
    """A guest's probe rows match build rows at home, but no shipment comes until all rows have expired."""
    times = [arrival(side, HOUR) for side in ("probe", "build")]
    pair.run(0, [arrival("build", HOUR, rows(3)), *times])
    pair.run(1, [arrival("probe", HOUR, rows(2)), *times])
    asked: list[Signal] = []
    for _ in range(batches):
        pair.batch += 1
        later = [arrival(side, (pair.batch + 1) * HOUR) for side in ("probe", "build")]
        pair.run(0, later)
        asked += pair.run(1, later).signals
    return asked[0]


def test_a_guest_that_gets_no_answer_asks_again_and_its_home_still_has_all_rows(tmp_path):
    pair = Pair(tmp_path)
    ask = without_an_answer(pair, ASK_AGAIN_AFTER)
    assert (ask.hash, ask.node, ask.again) == (HASH, 1, True)
    assert ask.until >= HOUR
    pair.batch += 1
    node = pair.run(0, [arrival("probe", 10 * HOUR), arrival("build", 10 * HOUR)], [ask])
    assert node.statistics.incomplete_pulls == 0
    (shipment,) = node.shipments
    pair.batch += 1
    pair.run(1, parts=parts_of(shipment, pair.batch - 1))
    assert pair.found.total() == len(pair.found) == 3 * 2
    assert not pair.uncovered(1)


def test_a_home_that_is_asked_again_when_rows_have_expired_says_so(tmp_path):
    pair = Pair(tmp_path)
    ask = without_an_answer(pair, ASK_AGAIN_AFTER + 3)
    pair.batch += 1
    assert pair.run(0, signals=[ask]).statistics.incomplete_pulls == 1


def test_answers_to_newer_rows_are_waited_for_before_a_guest_asks_again():
    guest = Guest(1, NODES)
    guest.note_uncovered(rows(1, HOUR), False, 0, 3)
    guest.note_uncovered(rows(1, 2 * HOUR), False, 0, 4)
    guest.hold([Grant(HASH, HOUR)], 5)
    assert guest.asks(5) == []
    assert [ask.again for ask in guest.asks(6)] == [True]


def test_a_lease_that_is_asked_for_again_sends_all_rows_again_and_they_are_taken_once(tmp_path):
    pair = Pair(tmp_path)
    signal = Signal(HASH, 1, HOUR + HOUR)
    for again in (False, True, True):
        pair.batch += 1
        new = rows(3, first=10 * pair.batch)
        ask = Signal(HASH, 1, signal.until, again=again)
        (shipment,) = pair.run(0, [arrival("build", HOUR, new)], [ask]).shipments
        pair.batch += 1
        pair.run(1, [arrival("probe", HOUR, rows(1, first=pair.batch))], parts=parts_of(shipment, pair.batch - 1))
    assert set(pair.found.values()) == {1}
    assert pair.found.total() == 9 * 3


def test_a_renewal_grants_without_sending_rows(tmp_path):
    pair = Pair(tmp_path)
    node = pair.run(0, [arrival("build", HOUR, rows(3))], [Signal(HASH, 1, HOUR + SECOND)])
    assert sum(table.num_rows for table in node.shipments[0].rows) == 3
    pair.batch += 1
    (shipment,) = pair.run(0, [], [Signal(HASH, 1, HOUR + 2 * SECOND)]).shipments
    assert list(shipment.rows) == []
    assert list(shipment.grants) == [Grant(HASH, HOUR + 2 * SECOND)]


def test_a_signal_that_comes_once_more_is_not_answered_again(tmp_path):
    pair = Pair(tmp_path)
    signals = [Signal(HASH, 1, HOUR + SECOND), Signal(HASH, 1, HOUR)]  # the longer lease covers the shorter one
    (shipment,) = pair.run(0, [arrival("build", HOUR, rows(3))], signals).shipments
    assert list(shipment.grants) == [Grant(HASH, HOUR + SECOND)]
    pair.batch += 1
    assert pair.run(0, [], signals).shipments == []


def test_a_pull_of_a_key_with_very_many_rows_is_split(tmp_path):
    pair = Pair(tmp_path)
    many = table(Row(KEY, HOUR, b"%0100d" % n, 0, n) for n in range(50_000))
    (shipment,) = pair.run(0, [arrival("build", HOUR, many)], [Signal(HASH, 1, HOUR)]).shipments
    parts = parts_of(shipment, 0)
    assert len(parts) > 5
    assert max(len(part.block) for part in parts) < 1_000_000
    pair.batch += 1
    pair.run(1, [arrival("probe", HOUR, rows(1))], parts=parts)
    assert pair.found.total() == 50_000


@pytest.mark.parametrize(
    "signal",
    [Signal(HASH, 0, HOUR), Signal(HASH, 2, HOUR), Signal(HASH, -1, HOUR)],
    ids=["to the home itself", "to no node", "to a negative node"],
)
def test_signals_that_make_no_sense_are_counted_and_change_nothing(signal):
    at_home = Home(0, NODES)
    at_home.answer([signal], BlockStore(Memory(), None, 1), 0, 0, 0)
    assert (at_home.foreign_signals, at_home.leases, list(at_home.shipments())) == (1, {}, [])


def test_a_signal_for_another_home_is_foreign():
    other = Home(1, NODES)
    other.answer([Signal(HASH, 0, HOUR)], BlockStore(Memory(), None, 1), 0, 0, 0)
    assert other.foreign_signals == 1


@pytest.mark.parametrize("damage", ["home", "block", "missing part", "other rows"])
def test_a_shipment_that_is_not_whole_or_not_of_its_home_is_not_taken(damage):
    guest = Guest(1, NODES)
    (part,) = parts_of(Shipment(0, 1, [rows(3)], [Grant(HASH, HOUR)], [HASH]), 4)
    changed = {
        "home": {"home": 1},
        "block": {"block": part.block[:-1] + b"\x01\x02"},
        "missing part": {"parts": 2},
        "other rows": {"home": 5},
    }[damage]
    changed = replace(part, attempt="another", **changed)
    assert guest.accept([changed], 5) == []
    assert guest.foreign_parts == 1
    assert guest.channels == {}
    assert len(guest.accept([part, changed], 5)) == 1


def test_what_is_shipped_twice_is_taken_once_and_what_comes_late_is_told():
    guest = Guest(1, NODES)
    parts = [part for _ in range(3) for part in parts_of(Shipment(0, 1, [rows(3)]), 4)]  # three attempts
    assert len(guest.accept(parts, 5)) == 1
    assert guest.accept(parts, 5) == guest.accept(parts, 6) == []
    assert guest.delayed_shipments == 0
    assert len(guest.accept(parts_of(Shipment(0, 1, [rows(3)]), 5), 9)) == 1
    assert guest.delayed_shipments == 1
    assert guest.accept(parts_of(Shipment(0, 1, [rows(3)]), 9), 9) == []  # from an abandoned attempt


def test_all_attempts_at_a_shipment_are_taken_and_each_row_once(tmp_path):
    pair = Pair(tmp_path)
    pair.run(1, [arrival("probe", HOUR, rows(1))])
    pair.batch += 1
    forwarded, pulled = rows(2), rows(3, first=1)  # one attempt read the signal early, the other did not
    attempts = [Shipment(0, 1, [forwarded]), Shipment(0, 1, [pulled], [Grant(HASH, HOUR)], [HASH])]
    pair.run(1, parts=[part for attempt in attempts for part in parts_of(attempt, 0)])
    assert pair.found.total() == len(pair.found) == 4
    assert not pair.uncovered(1)


def test_a_pull_of_a_lost_attempt_that_comes_with_the_committed_one_is_taken_once(tmp_path):
    pair = Pair(tmp_path)
    pair.batch = 3
    pair.run(1, [arrival("probe", HOUR, rows(1))])
    shipment = Shipment(0, 1, [rows(2)], [Grant(HASH, HOUR, False)], [HASH])
    pair.batch = 5
    pair.run(1, parts=[*parts_of(shipment, 3), *parts_of(shipment, 4)])
    assert sorted(pair.found.values()) == [1, 1]


def test_rows_that_come_late_and_may_have_been_there_before_are_not_taken_again(tmp_path):
    """An abandoned attempt may publish long after its batch, when its rows have already matched and expired."""
    pair = Pair(tmp_path)
    spec = replace(SPEC, after_us=100 * HOUR)  # the probe row stays, the build row expires
    first = parts_of(Shipment(0, 1, [rows(1)], [Grant(HASH, HOUR)], [HASH]), 0)
    late = parts_of(Shipment(0, 1, [rows(1), rows(1, 20 * HOUR, 7)], [], [HASH]), 1)
    state, durable = None, Memory()
    for batch in range(9):
        node = Node(spec, state, durable, tmp_path, 1)
        probe = [rows(1)] if batch == 1 else []
        arrivals = [arrival("probe", (batch + 1) * HOUR, *probe), arrival("build", HOUR)]
        parts = {1: first, 8: late}.get(batch, [])
        results = node.process(batch, NodeInputs(arrivals, parts=parts))
        pair.found += results_of(results)
        state = results.outcome.state
    assert results.outcome.statistics.delayed_shipments == 1
    assert sum(pair.found.values()) == 2
    assert max(pair.found.values()) == 1


@pytest.mark.parametrize(
    ("sent", "is_lost"),
    [
        (Stamp("j", 3, "old"), False),
        (Stamp("j", 3, "new"), True),
        (Stamp("j", 4, "old"), True),
        (Stamp("j", 4, "new"), False),
        (Stamp("j", 4, ANY_PLAN), False),
        (Stamp("j", 5, "new"), False),
        (Stamp("j", 6, "newer"), False),  # this node had nothing to do in that batch
    ],
    ids=str,
)
def test_of_a_batch_that_two_plans_have_tried_only_the_committed_one_counts(tmp_path, sent, is_lost):
    pair = Pair(tmp_path)
    for batch in range(6):
        pair.batch = batch
        pair.run(1, [arrival("probe", HOUR)], plan="old" if batch < 4 else "new")
    assert Node(SPEC, pair.states[1], pair.durables[1], tmp_path, 1).is_lost(sent) == is_lost


def test_neither_a_row_that_a_grant_covers_nor_a_late_one_is_uncovered():
    guest = Guest(1, NODES)
    guest.hold([Grant(HASH, HOUR)], 1)
    guest.note_uncovered(rows(3, HOUR), False, 0, 1)
    guest.note_uncovered(rows(3, HOUR + 1), False, HOUR + 2, 1)
    assert not guest.uncovered
    guest.note_uncovered(rows(3, HOUR + 1), False, HOUR + 1, 1)
    assert guest.earliest_uncovered == HOUR + 1
    guest.hold([Grant(HASH, HOUR + 1)], 1)
    assert guest.earliest_uncovered is None


def test_who_is_granted_all_rows_is_granted_a_fragments_share_but_not_the_other_way_round():
    guest = Guest(1, NODES)
    guest.hold([Grant(HASH, HOUR, fragment=True)], 1)
    guest.note_uncovered(rows(1, HOUR), True, 0, 1)
    assert not guest.uncovered
    guest.note_uncovered(rows(1, HOUR), False, 0, 1)
    assert guest.uncovered
    guest.hold([Grant(HASH, HOUR, fragment=False)], 1)
    assert not guest.uncovered


def written_and_read(**parts) -> NodeState:
    return NodeState.read(replace(NodeState.first({}), **parts).write())


def reopened(guest: Guest) -> Guest:
    state = written_and_read(held=guest.held, uncovered=guest.uncovered, channels=guest.channels)
    return Guest(guest.number, guest.nodes, dict(state.held), dict(state.uncovered), dict(state.channels))


def test_how_long_rows_waited_for_their_grant_is_counted_from_the_first_of_them():
    guest = Guest(1, NODES)
    guest.note_uncovered(rows(1, HOUR), False, 0, 3)
    guest.note_uncovered(rows(1, HOUR + 1), False, 0, 4)
    assert guest.asks(12)
    again = reopened(guest)
    again.hold([Grant(HASH, HOUR)], 13)  # covers one row of two
    assert again.waits == []
    again.hold([Grant(HASH, HOUR + 1)], 14)
    assert again.waits == [0] * 11 + [1]
    again.note_uncovered(rows(1, HOUR + 9), False, 0, 20)
    again.hold([Grant(HASH, HOUR + 9)], 22)
    assert again.waits == [0, 0, 1] + [0] * 8 + [1]


def test_at_home_every_row_is_covered():
    guest = Guest(0, NODES)
    guest.note_uncovered(rows(3), False, 0, 1)
    assert not guest.uncovered


def test_state_comes_back():
    guest = Guest(1, NODES, channels={0: 7})
    guest.hold([Grant(HASH, HOUR), Grant(HASH, HOUR, True)], 1)
    guest.note_uncovered(rows(1, HOUR + 5), False, 0, 3)
    again = reopened(guest)
    assert (again.held, again.uncovered, again.channels) == (guest.held, guest.uncovered, guest.channels)
    at_home = Home(0, NODES, {(HASH, 1, False): 5, (HASH, 1, True): 6})
    assert written_and_read(leases=at_home.leases).leases == at_home.leases


def test_only_leased_keys_are_forwarded(tmp_path):
    at_home = Home(0, NODES, {(HASH, 1, False): HOUR})
    mixed = table([Row(KEY, HOUR, b"v", 0, 0), Row(b"another", HOUR, b"v", 0, 1)])
    at_home.forward(mixed)
    (shipment,) = at_home.shipments()
    assert [row["key"] for each in shipment.rows for row in each.to_pylist()] == [KEY]
    assert at_home.forwarded_rows == 1
    assert list(shipment.grants) == []
