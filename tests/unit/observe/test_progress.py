import logging

import pytest

from balajoin.compute.statistics import NodeStatistics
from balajoin.observe.log import log_batch
from balajoin.observe.report import BatchReport
from balajoin.routing.statistics import SourceStatistics
from balajoin.service.log_limit import LogLimit
from progress_data import ended, read


def test_a_batch_is_one_line_of_what_went_in_and_out(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "balajoin")
    inputs = [read("views", {0: 5}, {0: 25}), read("control", {0: 0}, {0: 3})]
    progress = ended(
        2,
        inputs=inputs,
        entered={"probe": (10, 2), "build": (0, 1)},
        sources=[SourceStatistics(0, [4, 1])],
        nodes=[NodeStatistics(0, pairs=7, late_rows=4), None],
    )
    log_batch(BatchReport.of(progress))
    assert [record.getMessage() for record in caplog.records] == [
        "join=a-join batch=2 rows_in=13 rows_out=7 duration_ms=100 rows_per_s=130 late_rows=4 dead_letters=3 "
        "balance=0.750"
    ]


def test_what_may_cost_results_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    nodes = [NodeStatistics(0, delayed_shipments=2), NodeStatistics(1, foreign_records=3, incomplete_pulls=1), None]
    log_batch(BatchReport.of(ended(5, nodes=nodes)))
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [warning.partition(":")[0] for warning in warnings] == [
        "join=a-join batch=5 delayed_shipments=2",
        "join=a-join batch=5 incomplete_pulls=1",
        "join=a-join batch=5 foreign_records=3",
    ]


def test_a_name_with_blanks_is_still_one_value(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "balajoin")
    log_batch(BatchReport.of({**ended(1), "name": 'clicks "with" shows'}))
    assert caplog.records[0].getMessage().startswith('join="clicks \\"with\\" shows" batch=1 ')


# --- repeated warnings ------------------------------------------------------------------------------------------------


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def told_by(limit: LogLimit, level: int, text: str, name: str = "balajoin.observe.log") -> str | None:
    record = logging.LogRecord(name, level, "", 0, "%s", (text,), None)
    return record.getMessage() if limit.filter(record) else None


def test_a_warning_is_told_once_a_minute_and_then_how_many_there_were() -> None:
    clock = Clock()
    limit = LogLimit(clock)
    assert told_by(limit, logging.WARNING, "batch=1 foreign_records=3") == "batch=1 foreign_records=3"
    for second in (1, 30, 59):
        clock.now_s = second
        assert told_by(limit, logging.WARNING, f"batch={second} foreign_records=7") is None
    assert told_by(limit, logging.WARNING, "batch=59 delayed_shipments=1") == "batch=59 delayed_shipments=1"
    assert told_by(limit, logging.WARNING, "batch=1 foreign_records=3", "balajoin.spark") is not None
    clock.now_s = 60
    assert told_by(limit, logging.WARNING, "batch=60 foreign_records=1") == (
        "batch=60 foreign_records=1 (and 3 more like it since the last one)"
    )
    clock.now_s = 120
    assert told_by(limit, logging.WARNING, "batch=120 foreign_records=1") == "batch=120 foreign_records=1"


def test_batches_and_errors_are_always_told() -> None:
    limit = LogLimit(Clock())
    for level in (logging.DEBUG, logging.INFO, logging.ERROR):
        for _ in range(3):
            assert told_by(limit, level, "batch=1 rows_in=3") == "batch=1 rows_in=3"


def test_any_number_of_different_warnings_takes_bounded_memory() -> None:
    limit = LogLimit(Clock())
    for first in "abcdefghijklmnopqrstuvwxyz":
        for second in "abcdefghijklmnopqrstuvwxyz":
            assert told_by(limit, logging.WARNING, first + second) is not None
    assert len(limit._kinds) <= 256
