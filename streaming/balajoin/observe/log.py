"""Logs one line per batch, and a warning for each problem that the operators reported."""

import json
import logging
import re
from collections.abc import Iterator

from balajoin.observe.report import BatchReport

_logger = logging.getLogger(__name__)


def log_batch(report: BatchReport) -> None:
    _logger.info("%s", _describe(report))
    for trouble in troubles(report):
        _logger.warning("join=%s batch=%s %s", _quoted(report.name), report.batch, trouble)


def _describe(report: BatchReport) -> str:
    rows_in, duration_ms = report.rows_in, report.duration_ms
    rows_per_second = round(rows_in * 1000 / duration_ms) if duration_ms else 0
    late_rows, dead_letters = sum(node.late_rows for node in report.nodes), sum(report.dead_letters.values())
    balance = "none" if report.balance is None else f"{report.balance:.3f}"
    return (
        f"join={_quoted(report.name)} batch={report.batch} rows_in={rows_in} rows_out={report.rows_out} "
        f"duration_ms={duration_ms} rows_per_s={rows_per_second} late_rows={late_rows} "
        f"dead_letters={dead_letters} balance={balance}"
    )


def _quoted(name: str | None) -> str:
    """Quotes a name with blanks, since programs split log lines at blanks."""
    return name if name and re.fullmatch(r"[\w.-]+", name) else json.dumps(name or "", ensure_ascii=False)


def troubles(report: BatchReport) -> Iterator[str]:
    for side, ahead in report.rows_ahead.items():
        if ahead:
            yield (
                f"{side} rows_ahead={ahead}: dead letters, their time is past join.max_ahead; check the clock of this "
                f"machine, and {side}.time"
            )
    if delayed := sum(node.delayed_shipments for node in report.nodes):
        yield f"delayed_shipments={delayed}: results may be missing; a batch must read all that the last one published"
    if incomplete := sum(node.incomplete_pulls for node in report.nodes):
        yield (
            f"incomplete_pulls={incomplete}: results may be missing; build rows were asked for again after they had "
            "expired; see whether records of the control and replica topics were deleted"
        )
    if foreign := sum(node.foreign_records for node in report.nodes):
        yield (
            f"foreign_records={foreign}: not written by this join, and skipped; see `balajoin control tail`, and who "
            "may write to its control and replica topics"
        )
