"""Sends both streams at a steady rate, one thread each, and keeps every row that was sent."""

import threading
import time
from collections.abc import Iterator, Mapping

from balajoin.demo.scenario import PARTITIONS, PRICES, VIEWS, Rows, Scenario
from balajoin.embedded import workload
from balajoin.embedded.workload import Event

_PAUSE_S = 0.02
_STOP_TIMEOUT_S = 5.0


class Production:
    """Runs from `start` until all rows are sent, or until `stop`. `sent` has the rows so far, by topic."""

    def __init__(self, scenario: Scenario, client_options: Mapping[str, str]) -> None:
        self.sent: dict[str, list[Event]] = {VIEWS: [], PRICES: []}
        # Without idempotence, a row that is sent again because its answer was lost would be another row, with pairs of
        # its own. librdkafka would log that the broker is still getting ready for it.
        self._options = {**client_options, "enable.idempotence": "true", "log_level": "0"}
        self._stopping = threading.Event()
        self._failures: list[Exception] = []
        self._threads = [
            self._thread(VIEWS, scenario.views, scenario.rate),
            self._thread(PRICES, scenario.prices, scenario.prices_rate),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(_STOP_TIMEOUT_S)

    @property
    def counts(self) -> dict[str, int]:
        return {topic: len(rows) for topic, rows in self.sent.items()}

    def ended(self) -> bool:
        """Whether all rows are sent. Raises the error that stopped a thread."""
        if self._failures:
            raise self._failures[0]
        return not any(thread.is_alive() for thread in self._threads)

    def _thread(self, topic: str, rows: Rows, rate: int) -> threading.Thread:
        return threading.Thread(target=self._send, args=(topic, rows, rate), name=f"demo-{topic}", daemon=True)

    def _send(self, topic: str, rows: Rows, rate: int) -> None:
        try:
            events = rows.events(clock_ms(rate, self._stopping))
            workload.produce(self._options, topic, _recorded(events, self.sent[topic]), PARTITIONS)
        except Exception as error:
            self._failures.append(error)


def clock_ms(rate: int, stopping: threading.Event) -> Iterator[int]:
    """Yields the time `rate` times per second. After a delay it yields faster, until it has caught up."""
    start, given = time.monotonic(), 0
    while True:
        if given <= (time.monotonic() - start) * rate:
            yield time.time_ns() // 1_000_000
            given += 1
        elif stopping.wait(_PAUSE_S):
            return


def _recorded(events: Iterator[Event], record: list[Event]) -> Iterator[Event]:
    for event in events:
        record.append(event)
        yield event
