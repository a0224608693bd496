"""When a row is decided to have no match: a test for each reason to wait, and for each way in which a match may follow.

There are two nodes: the `home` of the key `k` and a `guest`. Windows and times are in seconds. Lateness is 0.
"""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from balajoin.compute.exchange import Arrival, NodeInputs
from balajoin.compute.node import Node
from balajoin.control.encoding import HEADER, read_replica, report_records, shipment_records
from balajoin.core.hashing import home as home_of
from balajoin.core.messages import Part, Report, Signal, Stamp
from balajoin.core.sides import SIDES, Side
from balajoin.core.spec import JoinSpec, JoinType
from oracle import Row
from strategies import SECOND, Memory, hash_of, results_of, table

BEFORE, AFTER = 10, 5
KEY = b"k"
HOME = home_of(hash_of(KEY), 2)
GUEST = 1 - HOME
JOIN = "0b2f"


@dataclass
class Nodes:
    type: JoinType
    cache: Path
    batch: int = 0
    states: list[bytes | None] = field(default_factory=lambda: [None, None])
    durables: list[Memory] = field(default_factory=lambda: [Memory(), Memory()])
    newest: dict[Side, int] = field(default_factory=dict)
    offsets: dict[Side, int] = field(default_factory=lambda: dict.fromkeys(SIDES, 0))
    parts: list[list[Part]] = field(default_factory=lambda: [[], []])
    reports: list[list[Report]] = field(default_factory=lambda: [[], []])
    found: list[tuple[int, int | None, int | None]] = field(default_factory=list)
    """The batch of each result, and the times of its probe and build row."""

    def step(
        self,
        *,
        probe: tuple[int, ...] = (),
        at: int = GUEST,
        build: tuple[int, ...] = (),
        probe_time: int | None = None,
        build_time: int | None = None,
        signal: int | None = None,
    ) -> None:
        """Runs a batch. `probe` and `build` are times of rows of KEY: probe rows go to node `at`, build rows home."""
        arrivals: list[list[Arrival]] = [[], []]
        for side, times, node, time in (("probe", probe, at, probe_time), ("build", build, HOME, build_time)):
            newest = [*times, *([] if time is None else [time])]
            if newest:
                self.newest[side] = max(*newest, self.newest.get(side, 0))
                for number in range(2):
                    rows = [table([self.row(side, t) for t in times])] if number == node and times else []
                    arrivals[number].append(Arrival(side, 0, self.newest[side] * SECOND, 0, rows))
        parts, self.parts = self.parts, [[], []]
        reports, self.reports = self.reports, [[], []]
        signals: list[list[Signal]] = [[], []]
        if signal is not None:
            signals[HOME].append(Signal(hash_of(KEY), GUEST, signal * SECOND))
        for number in range(2):
            self.process(number, arrivals[number], signals[number], parts[number], reports[number])
        self.batch += 1

    def process(self, number: int, arrivals, signals, parts, reports) -> None:
        spec = JoinSpec(2, BEFORE * SECOND, AFTER * SECOND, 0, 1 << 40, {"probe": 1, "build": 1}, {}, self.type)
        node = Node(spec, self.states[number], self.durables[number], self.cache, number)
        results = node.process(self.batch, NodeInputs(arrivals, signals, parts, reports))
        for probe, build in results_of(results):
            self.found.append((self.batch, *(row and row.time_us // SECOND for row in (probe, build))))
        self.states[number] = results.outcome.state
        stamp = Stamp(JOIN, self.batch)
        for shipment in results.outcome.shipments:
            for record in shipment_records(stamp, shipment):
                self.parts[shipment.node].append(read_replica(dict(record.headers)[HEADER].decode(), record.value)[1])
        for report in results.outcome.reports:
            for record in report_records(stamp, report):
                _, read = read_replica(dict(record.headers)[HEADER].decode(), record.value)
                self.reports[report.home].append(read)

    def row(self, side: Side, time: int) -> Row:
        self.offsets[side] += 1
        return Row(KEY, time * SECOND, b"v", 0, self.offsets[side])

    def end(self) -> list[tuple[int | None, int | None]]:
        """All results, after event time has passed far enough to decide every row."""
        for later in range(1, 9):
            self.step(probe_time=100_000 * later, build_time=100_000 * later)
        return sorted((result[1:] for result in self.found), key=str)


@pytest.fixture
def left(tmp_path: Path) -> Nodes:
    return Nodes("left", tmp_path)


@pytest.fixture
def right(tmp_path: Path) -> Nodes:
    return Nodes("right", tmp_path)


def test_a_row_that_comes_when_its_matches_are_past_waits_for_the_build_rows_of_its_home(left):
    left.step(build=(100,), probe_time=90)
    left.step(build_time=1000, probe_time=91)
    left.step(probe=(100,))
    left.step(signal=100)
    left.step(probe_time=101)
    assert left.end() == [(100, 100)]


def test_a_row_waits_for_the_build_rows_of_its_home_while_time_passes(left):
    left.step(build=(100,), probe_time=90)
    left.step(probe=(100,), build_time=1000)
    left.step(signal=100, build_time=1001)
    left.step(build_time=1002)
    assert left.end() == [(100, 100)]


def test_a_row_that_waited_in_vain_is_decided_once(left):
    left.step(probe_time=90, build_time=1000)
    left.step(probe=(100,))
    left.step(signal=100, build_time=1001)
    assert left.found == []
    left.step(build_time=1002)
    assert [result[1:] for result in left.found] == [(100, None)]
    assert left.end() == [(100, None)]


def test_what_is_decided_meets_no_late_row_even_if_it_is_still_stored(left):
    left.step(probe=(100, 101), at=HOME, build_time=90)
    left.step(build_time=106)
    left.step(build_time=106)
    assert [result[1:] for result in left.found] == [(100, None)]
    left.step(build=(96,))
    assert left.end() == [(100, None), (101, 96)]


def test_who_comes_after_its_last_possible_match_is_decided_at_once(left):
    left.step(probe_time=90, build_time=1000)
    left.step(probe=(100,), at=HOME)
    assert left.found == [(1, 100, None)]
    assert left.end() == [(100, None)]


def test_a_late_row_is_never_said_to_be_alone(left, right):
    left.step(probe_time=1000, build_time=1000)
    left.step(probe=(100,), at=HOME)
    assert left.end() == []
    right.step(probe_time=1000, build_time=1000)
    right.step(build=(100,))
    assert right.end() == []


def test_a_build_row_waits_for_the_reports_of_its_guests(right):
    """The probe row comes in the last batch in which it is on time, and meets its match two batches later."""
    right.step(build=(100,), probe_time=90)
    right.step(probe=(100,), probe_time=1000)
    right.step(signal=100, probe_time=1001)
    right.step(probe_time=1002)
    right.step(probe_time=1003)
    assert right.end() == [(100, 100)]


def test_a_build_row_that_comes_after_all_its_matches_waits_for_the_reports_of_its_guests(right):
    right.step(probe=(100,), probe_time=100, build_time=50)
    right.step(signal=2000)
    for time in range(1000, 1006):
        right.step(probe_time=time)
    right.step(build=(100,))
    right.step(probe_time=1010)
    right.step(probe_time=1011)
    assert right.end() == [(100, 100)]


def test_such_a_row_that_nobody_has_met_is_decided_once(right):
    right.step(probe_time=100, build_time=50)
    for time in range(1000, 1006):
        right.step(probe_time=time)
    right.step(build=(100,))
    assert right.found == []
    assert right.end() == [(None, 100)]


def test_a_replica_of_what_is_decided_meets_no_late_row_even_if_it_is_still_stored(right):
    right.step(build=(100, 101), probe_time=90)
    right.step(signal=2000, probe_time=91)
    right.step(probe_time=92)
    for _ in range(8):
        right.step(probe_time=111)
    assert [result[1:] for result in right.found] == [(None, 100)]
    right.step(probe=(96,))
    assert right.end() == [(96, 101), (None, 100)]
