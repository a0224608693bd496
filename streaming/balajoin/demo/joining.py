"""Both streams being sent, and the joins of them meanwhile."""

import time
from collections.abc import Callable, Sequence

from pyspark.sql import SparkSession

from balajoin.config.models import Config
from balajoin.demo.picture import Picture
from balajoin.demo.policy_join import PolicyJoin
from balajoin.demo.producing import Production
from balajoin.demo.scenario import Scenario
from balajoin.demo.workers import start_workers
from balajoin.kafka.client_options import librdkafka_options
from balajoin.observe.live.moment import Moment

_POLL_S = 0.1


class Joining:
    def __init__(
        self,
        spark: SparkSession,
        configs: Sequence[Config],
        scenario: Scenario,
        listeners: Sequence[Callable[[Moment], None]],
    ) -> None:
        self._seconds = scenario.seconds
        self.production = Production(scenario, librdkafka_options(configs[0].kafka))
        self._workers = start_workers(spark)
        self.joins = [PolicyJoin(spark, config, listeners) for config in configs]
        self.duration_s = 0.0

    def warm_up(self, check: Callable[[], None]) -> None:
        """Waits until the queries look for rows, and Python workers for what to do with them."""
        while self._workers.is_alive() or not all(join.has_begun for join in self.joins):
            self._wait(check)
        for join in self.joins:
            join.watch.update()
            join.watch.restart()

    def until_drained(self, show: Callable[[Picture], None], check: Callable[[], None]) -> None:
        """Sends everything, and waits until the joins are done with it. `check` may raise to end it."""
        begin = time.monotonic()
        self.production.start()
        while not self._is_drained():
            show(self._picture(time.monotonic() - begin))
            self._wait(check)
        self.duration_s = time.monotonic() - begin
        show(self._picture(self.duration_s))

    def _wait(self, check: Callable[[], None]) -> None:
        check()
        for join in self.joins:
            join.update()
        time.sleep(_POLL_S)

    def _is_drained(self) -> bool:
        if self.production.ended():
            for join in self.joins:
                join.look_whether_drained(self.production.counts)
        return all(join.is_drained for join in self.joins)

    def _picture(self, elapsed_s: float) -> Picture:
        return Picture(
            ended=self.production.ended(),
            elapsed_s=elapsed_s,
            seconds=self._seconds,
            sent=sum(self.production.counts.values()),
            joins=tuple(join.picture() for join in self.joins),
        )
