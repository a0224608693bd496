"""The machine's clock may jump between batches: no source becomes idle by that, and no source is awaited for ever."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from balajoin.core.event_time import BEGINNING, ActivityClock, Watermark
from balajoin.routing.half_life import HalfLife
from balajoin.service.clock import ClockWatch

IDLE = 1000
DAY = 86_400_000
NOON = 1_700_000_000_000

jumps = st.sampled_from([-30 * DAY, -DAY, -IDLE, -1, 0, 0, 1, IDLE, DAY, 30 * DAY]) | st.integers(-DAY, DAY)
pauses = st.integers(0, IDLE // 4)


@dataclass
class Stream:
    """Two sources of one stream, with a clock that may be wrong."""

    clock: ActivityClock = field(default_factory=lambda: ActivityClock(IDLE))
    watermark: Watermark = field(default_factory=lambda: Watermark(IDLE))
    wall_ms: int = NOON

    def batch(self, pause: int, jump: int, **heard: int) -> int:
        self.wall_ms += pause + jump
        now = self.clock.tick(self.wall_ms)
        self.watermark.expect(range(2), now)
        for source, time in heard.items():
            self.watermark.observe(int(source[1:]), time, now)
        self.watermark.advance(now)
        return self.watermark.current


@given(pauses, jumps, pauses)
def test_one_jump_makes_no_source_idle_that_misses_a_batch(pause, jump, next_pause):
    stream = Stream()
    assert stream.batch(0, 0, s0=10, s1=10) == 10
    assert stream.batch(pause, jump, s1=20) == 10
    assert stream.batch(next_pause, 0, s1=30) == 10
    assert stream.batch(0, 0, s0=25, s1=30) == 25


@given(st.lists(st.tuples(pauses, jumps), max_size=8))
def test_sources_that_are_heard_stay_however_the_clock_jumps(steps):
    stream = Stream()
    stream.batch(0, 0, s0=0, s1=0)
    for time, (pause, jump) in enumerate(steps, 1):
        assert stream.batch(pause, jump, s0=time, s1=1000 + time) == time


@given(st.lists(st.tuples(pauses, jumps), max_size=8), st.integers(1, IDLE // 2))
def test_a_silent_source_is_let_go_after_its_time_however_the_clock_has_jumped(steps, pause):
    """The true time that has passed counts, even if the machine's clock was set back by days."""
    stream = Stream()
    stream.batch(0, 0, s0=0, s1=0)
    for time, (jump_pause, jump) in enumerate(steps, 1):
        stream.batch(jump_pause, jump, s1=time)
    passed = 0
    while passed < IDLE:
        passed += pause
        current = stream.batch(pause, 0, s1=1000 + passed)
    assert current == 1000 + passed


@given(st.lists(st.tuples(pauses, jumps), max_size=20))
def test_neither_the_clock_nor_the_watermark_ever_goes_back(steps):
    stream = Stream()
    now, current = 0, BEGINNING
    for time, (pause, jump) in enumerate(steps):
        later = stream.batch(pause, jump, s0=-time, s1=time)
        assert now <= stream.clock.now_ms <= now + IDLE // 2 + 1
        assert later >= current
        now, current = stream.clock.now_ms, later


@given(st.lists(st.tuples(pauses, jumps), max_size=8), st.integers(1, 5))
def test_counts_go_on_to_halve_however_the_clock_has_jumped(steps, halvings):
    half_life, wall_ms = HalfLife(IDLE), NOON
    half_life.halvings(wall_ms)
    for pause, jump in steps:
        wall_ms += pause + jump
        half_life = HalfLife(IDLE, half_life.state())
        assert half_life.halvings(wall_ms) >= 0
    assert half_life.halvings(wall_ms + halvings * IDLE) == halvings


@given(st.lists(st.tuples(st.integers(0, 10), st.sampled_from([-86_400, -60, -5, -1, 0, 1, 86_400])), max_size=10))
def test_a_clock_that_is_set_back_is_told_once(steps):
    steady, wall, told, expected = 0.0, 1e9, [], []
    watch = ClockWatch(lambda: wall, lambda: steady)
    for passed, jump in steps:
        steady, wall = steady + passed, wall + passed + jump
        told.append(watch.trouble())
        expected.append(f"set back by {-jump} s" if jump <= -5 else None)
        assert watch.trouble() is None
    for text, wanted in zip(told, expected, strict=True):
        assert (text is None) == (wanted is None)
        assert wanted is None or wanted in text
