"""A process that is started again whenever it ends, as a supervisor does with a service."""

from collections.abc import Callable

from balajoin.spark.child import Child


class Supervised:
    def __init__(self, start: Callable[[], Child], most: int) -> None:
        self._start = start
        self._most = most
        self._child = start()
        self.restarts = 0

    @property
    def returncode(self) -> int | None:
        """None, unless the process has ended more often than it may. To ask makes the supervisor look."""
        if self._child.returncode is not None and self.restarts < self._most:
            self.restarts += 1
            self._child = self._start()
        return self._child.returncode

    def stop(self, within_s: float) -> None:
        self._child.terminate()
        if not self._child.wait(within_s):
            self._child.kill()
