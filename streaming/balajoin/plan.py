"""A planned join, and what must happen before its query starts."""

from dataclasses import dataclass

from pyspark.sql import DataFrame

from balajoin.config.models import JoinSettings
from balajoin.control.encoding import wake_up_record
from balajoin.kafka.producer import Publisher
from balajoin.observe import idle_ticks
from balajoin.spark.conf import required_conf


@dataclass(frozen=True)
class JoinPlan:
    results: DataFrame
    settings: JoinSettings
    publisher: Publisher
    awaits_matches: bool
    """Rows wait until it is known whether they have a match, even while no records come."""
    owes_results: bool
    """Some node owes results from before a rescale, and must emit them even if no records come."""

    def prepare(self) -> DataFrame:
        """Sets up the session, and lets batches run while no records come, if needed. Then the query may be started."""
        spark = self.results.sparkSession
        for name, value in required_conf(self.settings.nodes).items():
            spark.conf.set(name, value)
        if self.awaits_matches or self.owes_results:
            self.publisher.publish(self.settings.control_topic, [wake_up_record()], whole=True)
        if self.awaits_matches:
            idle_ticks.keep_time(spark, self.settings, self.publisher)
        return self.results
