"""When a stop request may interrupt the query's thread."""

from types import SimpleNamespace
from typing import Any

import pytest

from balajoin.service import stopping


class SlowQuery:
    """A query whose thread goes from one place to the next whenever somebody looks."""

    def __init__(self, *places: str) -> None:
        self._places = list(places)
        self.stopped_at: str | None = None
        self._jsq = self
        self.status = {"isTriggerActive": False}  # Spark tells late

    def streamingQuery(self) -> Any:  # noqa: N802 - Spark's names
        return SimpleNamespace(state=lambda: SimpleNamespace(set=lambda _: None), queryExecutionThread=lambda: self)

    def isAlive(self) -> bool:  # noqa: N802
        return bool(self._places)

    def getStackTrace(self) -> list[Any]:  # noqa: N802
        place = self._places[0]
        if place != "waitTillTime":
            self._places.pop(0)
        return [SimpleNamespace(getMethodName=lambda name=name: name) for name in (place, "execute", "run")]

    def stop(self) -> None:
        self.stopped_at = self._places[0] if self._places else "the end"


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "_terminated", lambda: None)
    monkeypatch.setattr(stopping, "_POLL_S", 0)


@pytest.mark.parametrize(
    ("places", "stopped_at"),
    [
        (("executeOneBatch", "executeOneBatch", "runBatch", "markMicroBatchEnd"), "the end"),
        (("executeOneBatch", "runBatch", "waitTillTime"), "waitTillTime"),
        (("waitTillTime",), "waitTillTime"),
        ((), "the end"),
    ],
)
def test_a_batch_that_has_begun_is_finished_however_late_the_status_tells_of_it(
    places: tuple[str, ...], stopped_at: str
) -> None:
    query: Any = SlowQuery(*places)
    assert stopping.finish_batch_and_stop(query, stopping.StopRequests())
    assert query.stopped_at == stopped_at


def test_a_second_request_does_not_wait() -> None:
    requests = stopping.StopRequests()
    requests.count = 2
    query: Any = SlowQuery("runBatch", "runBatch", "runBatch")
    assert not stopping.finish_batch_and_stop(query, requests)
    assert query.stopped_at == "runBatch"
