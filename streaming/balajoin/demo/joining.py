"""Both streams being sent, and the query that joins them meanwhile."""

import time
from collections.abc import Callable

from pyspark.sql import SparkSession

from balajoin import service
from balajoin.clients import librdkafka_options
from balajoin.demo.display import Picture
from balajoin.demo.producing import Production
from balajoin.demo.scenario import NODES, Scenario
from balajoin.demo.watching import Watch
from balajoin.errors import BalaJoinError
from balajoin.settings import Config

_POLL_S = 0.1
_STALLED_AFTER_S = 180.0


class Joining:
    def __init__(self, spark: SparkSession, config: Config, scenario: Scenario) -> None:
        self._seconds = scenario.seconds
        self.production = Production(scenario, librdkafka_options(config.kafka))
        self.query = service.start(spark, config)
        self.watch = Watch(self.query, NODES)
        self.duration_s = 0.0

    def warm_up(self, check: Callable[[], None]) -> None:
        """Waits for the first batch, which is empty. In it, Spark compiles the plan and starts Python workers."""
        while self.query.lastProgress is None:
            self._wait(check)
        self.watch.update()
        self.watch.restart()

    def until_drained(self, show: Callable[[Picture], None], check: Callable[[], None]) -> None:
        """Sends everything, and waits until the query has consumed it. `check` may raise to end it."""
        begin = time.monotonic()
        self.production.start()
        while not self._is_drained():
            show(self._picture(time.monotonic() - begin))
            self._wait(check)
        self.duration_s = time.monotonic() - begin
        show(self._picture(self.duration_s))

    def _wait(self, check: Callable[[], None]) -> None:
        check()
        failure = self.query.exception()
        if failure is not None:
            raise failure
        if self.watch.silent_s > _STALLED_AFTER_S:
            raise BalaJoinError(f"no batch ended for {_STALLED_AFTER_S:.0f} s: run it with --verbose to see why")
        time.sleep(_POLL_S)
        self.watch.update()

    def _is_drained(self) -> bool:
        return self.production.ended() and self.watch.has_consumed(self.production.counts)

    def _picture(self, elapsed_s: float) -> Picture:
        watch, (rows_in_per_s, pairs_out_per_s) = self.watch, self.watch.rows_per_s()
        return Picture(
            ended=self.production.ended(),
            elapsed_s=elapsed_s,
            seconds=self._seconds,
            sent=sum(self.production.counts.values()),
            rows_in=watch.rows_in,
            rows_in_per_s=rows_in_per_s,
            pairs_out=watch.pairs_out,
            pairs_out_per_s=pairs_out_per_s,
            batches=watch.batches,
            batch_ms=watch.batch_ms,
            node_rows=tuple(watch.node_rows),
        )
