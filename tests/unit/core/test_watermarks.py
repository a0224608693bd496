from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balajoin.core.event_time import BEGINNING, ActivityClock, Watermark, advance_both

IDLE = 1000
HOUR = 3_600_000


def test_it_is_the_minimum_over_the_sources():
    watermark = Watermark(IDLE)
    for source, time in enumerate((30, 10, 20)):
        watermark.observe(source, time, 0)
    watermark.advance(0)
    assert watermark.current == 10


def test_nothing_is_known_before_the_first_source():
    watermark = Watermark(IDLE)
    watermark.advance(5 * IDLE)
    assert watermark.current == BEGINNING


def test_an_expected_source_holds_it_back_until_it_counts_as_idle():
    watermark = Watermark(IDLE)
    watermark.expect(range(2), 0)
    for now in (0, IDLE - 1, IDLE):
        watermark.expect(range(2), now)
        watermark.observe(0, 50, now)
        watermark.advance(now)
        assert watermark.current == (BEGINNING if now < IDLE else 50)


def test_an_idle_source_leaves_and_comes_back():
    watermark = Watermark(IDLE)

    def batch(now: int, **heard: int) -> int:
        for source, time in heard.items():
            watermark.observe(int(source[1:]), time, now)
        watermark.advance(now)
        return watermark.current

    assert batch(0, s0=10, s1=20) == 10
    assert batch(IDLE - 1, s1=60) == 10
    assert batch(IDLE, s1=70) == 70
    assert batch(IDLE + 1, s0=15, s1=80) == 70  # source 0 is back and behind, so the watermark stands still
    assert batch(IDLE + 2, s0=75, s1=90) == 75
    assert batch(2 * IDLE + 1, s1=95) == 75
    assert batch(2 * IDLE + 2, s1=99) == 99


def test_it_stands_still_when_all_are_idle():
    watermark = Watermark(IDLE)
    watermark.observe(0, 10, 0)
    watermark.observe(1, 20, 0)
    watermark.advance(0)
    watermark.advance(10 * IDLE)
    assert watermark.current == 10


@given(
    st.lists(
        st.tuples(st.dictionaries(st.integers(0, 3), st.integers(-50, 50), max_size=4), st.integers(0, IDLE)),
        max_size=25,
    ),
    st.integers(0, 3),
)
def test_it_follows_its_definition_and_never_goes_back(batches, expected):
    watermark = Watermark(IDLE)
    history = [(0, source, BEGINNING) for source in range(expected)]
    now, current = 0, BEGINNING
    watermark.expect(range(expected), now)
    for heard, pause in batches:
        now += pause
        for source, time in heard.items():
            history.append((now, source, time))
            watermark.observe(source, time, now)
        watermark = Watermark.of(watermark.state(), IDLE)
        watermark.expect(range(expected), now)
        watermark.advance(now)
        active = {source for at, source, _ in history if now - at < IDLE}
        newest = [max(time for _, source, time in history if source == each) for each in active]
        current = max(current, min(newest, default=BEGINNING))
        assert watermark.current == current


@given(
    st.integers(1000, HOUR),
    st.lists(st.integers(0, 500), max_size=5),
    st.integers(0, 1000 * HOUR),
)
def test_a_pause_of_the_query_makes_no_source_idle(idle_after, pauses, long_pause):
    clock = ActivityClock(idle_after)
    batch_ms = 1_700_000_000_000
    clock.tick(batch_ms)
    for pause in pauses:
        batch_ms += pause
        clock.tick(batch_ms)
    watermark = Watermark(idle_after)
    watermark.observe(0, 10, clock.now_ms)
    watermark.observe(1, 10, clock.now_ms)
    now = clock.tick(batch_ms + long_pause)
    watermark.observe(1, 99, now)  # the first batch after the pause has no rows of source 0 yet
    watermark.advance(now)
    assert watermark.current == 10


@pytest.mark.parametrize("idle_after", [1000, 1001])
def test_a_silent_source_of_a_query_with_rare_batches_is_let_go_after_two(idle_after):
    clock = ActivityClock(idle_after)
    watermark = Watermark(idle_after)
    for source in range(2):
        watermark.observe(source, 10, clock.tick(0))
    seen = []
    for batch in (1, 2):
        now = clock.tick(batch * HOUR)
        watermark.observe(1, 10 + batch, now)
        watermark.advance(now)
        seen.append(watermark.current)
    assert seen == [10, 12]


@given(st.lists(st.integers(0, 400), max_size=20))
def test_the_clock_follows_frequent_batches_exactly(pauses):
    clock = ActivityClock(IDLE)
    assert clock.tick(5000) == 0
    for pause, total in zip(pauses, (sum(pauses[: i + 1]) for i in range(len(pauses))), strict=True):
        assert clock.tick(clock.batch_ms + pause) == total


@given(st.lists(st.integers(0, 10 * IDLE), min_size=1, max_size=20))
def test_the_clock_never_goes_back(batches):
    """The machine's clock may go back. Time that passes after that counts as usual."""
    clock = ActivityClock(IDLE)
    now = 0
    for batch_ms in batches:
        later = clock.tick(batch_ms)
        assert now <= later <= now + IDLE // 2 + 1
        now = later
    assert now <= sum(max(0, later - earlier) for earlier, later in pairwise(batches))


def test_a_silent_stream_follows_the_other_one():
    probe, build = Watermark(IDLE), Watermark(IDLE)
    build.expect(range(2), 0)
    for now, newest in ((0, 100), (IDLE - 1, 200), (IDLE, 300)):
        probe.observe(0, newest, now)
        advance_both(probe, build, now)
        assert probe.current == newest
        assert build.current == (newest if now == IDLE else BEGINNING)
    build.observe(0, 250, IDLE + 1)  # the build stream is back, and behind
    probe.observe(0, 400, IDLE + 1)
    advance_both(probe, build, IDLE + 1)
    assert (probe.current, build.current) == (400, 300)


def test_when_all_are_silent_time_goes_on_as_fast_as_the_clock():
    probe, build = Watermark(IDLE), Watermark(IDLE)
    probe.observe(0, 50, 0)
    build.observe(0, 20, 0)
    build.observe(1, 70, 0)
    for now, expected in ((IDLE - 1, (50, 20)), (IDLE, (70, 70)), (IDLE + 3, (3070, 3070)), (IDLE + 2, (3070, 3070))):
        advance_both(probe, build, now)
        assert (probe.current, build.current) == expected


def test_silence_before_the_first_row_moves_nothing():
    probe, build = Watermark(IDLE), Watermark(IDLE)
    for watermark in (probe, build):
        watermark.expect(range(2), 0)
    advance_both(probe, build, 10 * IDLE)
    assert probe.current == build.current == BEGINNING
