"""One log line a batch, and a warning where the operators had reason for one."""

import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from balajoin.report import BatchReport

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class BatchLog:
    inputs: Collection[str]
    """The topics whose records are rows."""

    def __call__(self, report: BatchReport) -> None:
        _logger.info("%s", self._describe(report))
        for trouble in troubles(report):
            _logger.warning("batch=%s %s", report.batch, trouble)

    def _describe(self, report: BatchReport) -> str:
        rows_in, duration_ms = report.rows_in(self.inputs), report.duration_ms
        rows_per_second = round(rows_in * 1000 / duration_ms) if duration_ms else 0
        return (
            f"batch={report.batch} rows_in={rows_in} rows_out={report.rows_out} duration_ms={duration_ms} "
            f"rows_per_s={rows_per_second}"
        )


def troubles(report: BatchReport) -> Iterator[str]:
    if delayed := sum(node.delayed_shipments for node in report.nodes):
        yield f"delayed_shipments={delayed}: results may be missing; a batch must read all that the last one published"
    if foreign := sum(node.foreign_records for node in report.nodes):
        yield (
            f"foreign_records={foreign}: not written by this join, and skipped; see `balajoin control tail`, and who "
            "may write to its control and replica topics"
        )
