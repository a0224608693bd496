"""One of the joins: its query, and whether it has done all there is to do."""

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import SparkSession

from balajoin.config.models import Config
from balajoin.demo.end_offsets import EndOffsets
from balajoin.demo.picture import JoinPicture
from balajoin.demo.watching import Watch
from balajoin.errors import BalaJoinError
from balajoin.kafka import topics
from balajoin.kafka.client_options import librdkafka_options
from balajoin.observe.live.moment import Moment
from balajoin.observe.live.telling import Telling
from balajoin.service.run import start

_STALLED_AFTER_S = 180.0


class PolicyJoin:
    def __init__(self, spark: SparkSession, config: Config, listeners: Sequence[Callable[[Moment], None]] = ()) -> None:
        self.config = config
        self.query = start(spark, config)
        self.watch = Watch(
            self.query, config.join.nodes, (config.probe.topic, config.build.topic), Telling.of(config, listeners)
        )
        shapes = topics.shapes(config)
        own = {topic: shapes[topic].partitions for topic in (config.join.control_topic, config.join.replica_topic)}
        self._published = EndOffsets(librdkafka_options(config.kafka), own)
        self._looked_at = -1
        self.is_drained = False

    @property
    def policy(self) -> str:
        return self.config.join.policy

    @property
    def has_begun(self) -> bool:
        return self.query.lastProgress is not None

    def update(self) -> None:
        """Takes in what the query did since the last call; raises what ended it."""
        failure = self.query.exception()
        if failure is not None:
            raise failure
        if self.watch.silent_s > _STALLED_AFTER_S and not self.is_drained:
            raise BalaJoinError(
                f"{self.policy}: no batch ended for {_STALLED_AFTER_S:.0f} s: run it with --verbose to see why"
            )
        self.watch.update()

    def look_whether_drained(self, sent: Mapping[str, int]) -> None:
        """Drained is a query that has read whatever was sent, and all that its own batches published meanwhile.

        A batch begins only where something is unread, so that nothing unread means that none is under way either.
        """
        if self.is_drained or not self.watch.has_consumed(sent) or self._looked_at == self.watch.batches:
            return
        published = self._published.read()
        if published is not None:  # else the broker is asked again
            self._looked_at = self.watch.batches
            self.is_drained = self.watch.has_consumed(published)

    def picture(self) -> JoinPicture:
        watch, (rows_in_per_s, pairs_out_per_s) = self.watch, self.watch.rows_per_s()
        return JoinPicture(
            policy=self.policy,
            drained=self.is_drained,
            rows_in=watch.rows_in,
            rows_in_per_s=rows_in_per_s,
            pairs_out=watch.pairs_out,
            pairs_out_per_s=pairs_out_per_s,
            batches=watch.batches,
            batch_ms=watch.batch_ms,
            figures=watch.figures,
            hot_keys=tuple(watch.hot_keys.all()),
        )
