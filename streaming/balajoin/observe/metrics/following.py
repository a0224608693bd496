"""A running query's reports, told to whoever listens: for those who start the query themselves."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from balajoin.observe.report import Listener, Query, Reports

_logger = logging.getLogger(__name__)
_POLL_S = 0.2


@contextmanager
def follow(query: Query, *listeners: Listener) -> Iterator[None]:
    """Within, a thread tells the listeners of every batch; of the last ones too, when it is left."""
    reports, ending = Reports(query), threading.Event()

    def watch() -> None:
        try:
            while not ending.wait(_POLL_S):
                reports.tell(listeners)
            reports.tell(listeners)
        except Exception as error:  # whoever waits for the query is told why it ended
            _logger.warning("no reports of the query any more: %s", error)

    thread = threading.Thread(target=watch, name="balajoin-reports", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()
