import logging

import pytest

from balajoin.compute.statistics import NodeStatistics
from balajoin.progress import BatchLog
from balajoin.report import BatchReport
from progress_data import ended, read


def test_a_batch_is_one_line_of_what_went_in_and_out(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "balajoin")
    inputs = [read("views", {0: 5}, {0: 15}), read("control", {0: 0}, {0: 3})]
    progress = ended(2, inputs=inputs, nodes=[NodeStatistics(0, pairs=7), None])
    BatchLog(("views", "prices"))(BatchReport.of(progress))
    assert [record.getMessage() for record in caplog.records] == [
        "batch=2 rows_in=10 rows_out=7 duration_ms=100 rows_per_s=100"
    ]


def test_what_may_cost_results_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    nodes = [NodeStatistics(0, delayed_shipments=2), NodeStatistics(1, foreign_records=3), None]
    BatchLog(())(BatchReport.of(ended(5, nodes=nodes)))
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [warning.partition(":")[0] for warning in warnings] == [
        "batch=5 delayed_shipments=2",
        "batch=5 foreign_records=3",
    ]
