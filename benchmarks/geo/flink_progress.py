"""Tells how far a job of Flink has come, in the words of balajoin's log: a line for each so many rows.

`python -m geo.flink_progress ADDRESS JOB BATCH ROWS` runs on the driver's host. Flink has no batches: a line stands for
the rows that the join has taken since the line before. The last line comes when the job has ended, all committed.
"""

import json
import sys
import time
from typing import Any
from urllib.request import urlopen

_POLL_S = 0.5
_ENDED = ("FINISHED", "FAILED", "CANCELED")


def follow(address: str, job: str, batch: int, rows: int) -> None:
    told = number = 0
    began = time.monotonic()

    def tell(upto: int) -> None:
        nonlocal told, number, began
        now = time.monotonic()
        print(f"batch={number} rows_in={upto - told} rows_out=0 duration_ms={(now - began) * 1000:.0f}", flush=True)
        told, number, began = upto, number + 1, now

    while True:
        with urlopen(f"{address}/jobs/{job}", timeout=30) as answer:
            status = json.load(answer)
        taken = _taken(status)
        if status["state"] in _ENDED:
            if status["state"] != "FINISHED":
                sys.exit(f"the job is {status['state']}")
            tell(rows)
            return
        while taken - told >= batch and told + batch < rows:
            tell(told + batch)
        time.sleep(_POLL_S)


def _taken(status: dict[str, Any]) -> int:
    """Rows that the join has read from both sources."""
    joins = [vertex for vertex in status["vertices"] if "IntervalJoin" in vertex["name"]]
    return sum(vertex["metrics"]["read-records"] for vertex in joins)


if __name__ == "__main__":
    follow(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    time.sleep(3600)  # until it is ended: the reader of its log takes an end for a failure
