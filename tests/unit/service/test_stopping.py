"""When a stop request may end the query: never while a batch is planned, for Spark would cut that one short."""

from types import SimpleNamespace
from typing import Any

import pytest

from balajoin.service import stopping

ACTIVE, TERMINATED = "active", "terminated"
PLANS, RUNS, WAITS = ["plan", "runBatch"], ["collect", "withNewExecutionId", "runBatch"], ["wait", "waitTillTime"]
POLLS = ["sleep", "executeOneBatch"]


class SlowQuery:
    """A query whose thread goes from one stack to the next whenever somebody looks, but waits until it is stopped."""

    def __init__(self, *stacks: list[str], lock_is_free: bool = True) -> None:
        self._stacks = list(stacks)
        self._state = ACTIVE
        self._lock_is_free = lock_is_free
        self.stopped_in: list[str] | None = None
        self.cut_short = False
        self._jsq = self

    def streamingQuery(self) -> Any:  # noqa: N802 - Spark's names
        lock = SimpleNamespace(tryLock=lambda: self._lock_is_free, unlock=lambda: None)
        return SimpleNamespace(
            state=lambda: SimpleNamespace(get=lambda: self._state, set=self._set),
            queryExecutionThread=lambda: self,
            awaitProgressLock=lambda: lock,
        )

    def _set(self, state: str) -> None:
        self._state = state

    def isAlive(self) -> bool:  # noqa: N802
        return bool(self._stacks)

    def getStackTrace(self) -> list[Any]:  # noqa: N802
        if not self._stacks:
            return []  # as of a thread that has ended
        stack = self._stacks[0]
        if stack is not WAITS:
            self._stacks.pop(0)
            if self._state == TERMINATED:
                self.cut_short |= stack is PLANS
                if stack is RUNS and self._stacks:
                    self._stacks.clear()
        return [SimpleNamespace(getMethodName=lambda name=name: name) for name in stack]

    def stop(self) -> None:
        self.stopped_in = self._stacks[0] if self._stacks else []


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "_terminated", lambda: TERMINATED)
    monkeypatch.setattr(stopping, "_POLL_S", 0)
    monkeypatch.setattr(stopping, "_LOOK_S", 0)


@pytest.mark.parametrize(
    ("stacks", "stopped_in"),
    [
        ((PLANS, PLANS, RUNS, RUNS), []),
        ((RUNS, RUNS), []),
        ((PLANS, RUNS, WAITS), WAITS),
        ((WAITS,), WAITS),
        ((POLLS, POLLS), []),
        ((POLLS, ["constructNextBatch"], PLANS, RUNS, RUNS), []),  # rows come just when it is told to end
        ((), []),
    ],
)
def test_a_batch_that_has_begun_is_finished(stacks: tuple[list[str], ...], stopped_in: list[str]) -> None:
    query: Any = SlowQuery(*stacks)
    assert stopping.finish_batch_and_stop(query, stopping.StopRequests())
    assert query.stopped_in == stopped_in
    assert not query.cut_short


@pytest.mark.parametrize("lock_is_free", [True, False])
def test_a_second_request_does_not_wait(lock_is_free: bool) -> None:
    requests = stopping.StopRequests()
    requests.count = 2
    query: Any = SlowQuery(PLANS, PLANS, PLANS, lock_is_free=lock_is_free)
    assert not stopping.finish_batch_and_stop(query, requests)
    assert query.stopped_in == PLANS
