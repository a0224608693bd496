"""A worker dies in the middle of a join: does the join go on, how soon, and are its results complete?"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from geo import joining
from geo.hosts import Host
from geo.joining import Setting
from geo.loads import Load
from geo.outcome import Outcome

Fault = Literal["killed", "unplugged", "cut"]
FAULTS: tuple[Fault, ...] = get_args(Fault)
AFTER_BATCHES = 2
_INTO_BATCH_S = 2
_RESTARTED_AFTER_S = 5
_CUT_FOR_S = 30

# By default Spark waits two minutes for a host that does not answer. These make it a quarter of that.
QUICK_TO_NOTICE = {
    "spark.network.timeout": "30s",
    "spark.executor.heartbeatInterval": "5s",
    "spark.network.timeoutInterval": "10s",
}


@dataclass
class Breaker:
    """Breaks a worker once, two seconds into a batch, and mends what comes back by itself."""

    fault: Fault
    worker: Host
    restart: Callable[[Host], object]
    say: Callable[[str], None]
    broke_at: float = 0.0
    batch_ends: list[float] = field(default_factory=list)
    _thread: threading.Thread | None = None

    def at_batch(self, ended: int) -> None:
        self.batch_ends.append(time.time())
        if ended == AFTER_BATCHES:
            self._thread = threading.Thread(target=self._break, daemon=True)
            self._thread.start()

    def wait(self) -> None:
        if self._thread:
            self._thread.join(_CUT_FOR_S + 30)

    @property
    def pause_s(self) -> float | None:
        """From the fault to the end of the next batch."""
        later = [end for end in self.batch_ends if self.broke_at and end > self.broke_at]
        return round(later[0] - self.broke_at, 1) if later else None

    def _break(self) -> None:
        time.sleep(_INTO_BATCH_S)
        self.broke_at = time.time()
        self.say(f"{self.worker.name} is {self.fault}")
        if self.fault != "killed":
            self.worker.cut()
        if self.fault != "cut":
            self.worker.kill()
        if self.fault == "killed":
            time.sleep(_RESTARTED_AFTER_S)
            self.restart(self.worker)
        elif self.fault == "cut":
            time.sleep(_CUT_FOR_S)
            self.worker.mend()
            self.say(f"{self.worker.name} is back")


def run(setting: Setting, name: str, fault: Fault, policy: str, load: Load) -> Outcome:
    """All workers are there again afterwards."""
    worker = setting.cluster.hosts.workers[-1]
    breaker = Breaker(fault, worker, setting.cluster.start_worker, setting.say)
    found = joining.run(setting, name, policy, load, conf=QUICK_TO_NOTICE, with_ids=True, at_batch=breaker.at_batch)
    breaker.wait()
    if fault == "unplugged":
        worker.mend()
        setting.cluster.start_worker(worker)
    return replace(found, fault=fault, pause_s=breaker.pause_s)


def problems(outcomes: Sequence[Outcome]) -> list[str]:
    """What a fault must not do."""
    found = []
    for one in outcomes:
        if not one.finished:
            found.append(f"{one.contender} on {one.load} {one.fault}: not finished in time")
        elif one.results != one.expected or one.repeated:
            found.append(
                f"{one.contender} on {one.load} {one.fault}: {one.results} results of {one.expected}, "
                f"{one.repeated or 0} repeated"
            )
    return found
