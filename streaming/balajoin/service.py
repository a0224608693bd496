"""The join as a service: from a checked configuration to a query that runs until it is told to stop."""

import logging
import os
import time
import warnings
from contextlib import suppress
from pathlib import Path

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.accumulators import AccumulatorTCPServer
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from balajoin import topic_ids, topics
from balajoin.broker.jars import default_cache
from balajoin.check import missing_topics
from balajoin.clients import spark_writer_options
from balajoin.clock import ClockWatch
from balajoin.errors import BalaJoinError, ConfigError
from balajoin.failures import JVM_GONE, Place, explain
from balajoin.progress import BatchLog
from balajoin.session import create_session
from balajoin.settings import Config
from balajoin.stopping import Interrupted, StopRequests, finish_batch_and_stop
from balajoin.topic_ids import TopicWatch

_logger = logging.getLogger(__name__)
_POLL_S = 0.2
STOPPED, CUT_SHORT = 0, 130


def run(config: Config, path: Path | None = None, *, cache: Path | None = None, verbose: bool = False) -> int:
    """Until SIGTERM or Ctrl-C. Raises a BalaJoinError of one clear line when the query fails.

    `path` is the file that messages refer to, `cache` the folder of the connector's jars.
    """
    file = str(path or "FILE")
    with StopRequests() as requests:
        try:
            spark_writer_options(config.kafka)
            require_topics(config, file)
            _say_in_one_line_that_the_jvm_died()
            spark = _session(config, cache or default_cache(os.environ), verbose)
            try:
                requests.wait_for_batches()
                ids = topic_ids.verify(spark, config)
                watch = topic_ids.TopicWatch(config.kafka, ids, config.run.checkpoint)
                return until_stopped(start(spark, config), requests, watch)
            except (PySparkException, Py4JError, ConnectionError) as error:
                raise _failure(error, config, file) from None
            finally:
                with suppress(Py4JError, ConnectionError):  # the JVM may be what died
                    spark.stop()
        except Interrupted:
            return STOPPED


def _say_in_one_line_that_the_jvm_died() -> None:
    """PySpark's own threads would print their traces beside it."""

    def keep_quiet(*_: object) -> None:
        _logger.debug("lost Spark's Java process", exc_info=True)

    AccumulatorTCPServer.handle_error = keep_quiet  # type: ignore[assignment, method-assign]
    warnings.filterwarnings("ignore", "Unable to cleanly shutdown Spark JVM", RuntimeWarning)


def _session(config: Config, cache: Path, verbose: bool) -> SparkSession:
    return create_session(
        master=config.run.master,
        app_name=config.name,
        spark_conf=config.spark,
        cache=cache,
        nodes=config.join.nodes,
        checkpoint=config.run.checkpoint,
        verbose=verbose,
    )


def require_topics(config: Config, file: str) -> None:
    counts = topics.existing(config.kafka, config.topics_by_setting.values())
    missing = missing_topics(config, counts, file)
    if missing:
        raise ConfigError(missing)


def start(spark: SparkSession, config: Config) -> StreamingQuery:
    from balajoin import output, query

    joined = query.join(
        spark, config.probe, config.build, kafka=config.kafka, settings=config.join, cache_dir=config.run.cache_dir
    )
    return (
        output.to_kafka_columns(joined, config.output)
        .writeStream.format("kafka")
        .queryName(config.name)
        .options(**spark_writer_options(config.kafka))
        .option("topic", config.output.topic)
        .option("checkpointLocation", config.run.checkpoint)
        .trigger(processingTime=f"{config.run.trigger_ms} milliseconds")
        .start()
    )


def until_stopped(query: StreamingQuery, requests: StopRequests, topics_watch: TopicWatch | None = None) -> int:
    batches, clock = BatchLog(query), ClockWatch()
    _logger.info("running name=%s; stop it with Ctrl-C or SIGTERM", query.name)
    while requests.count == 0 and query.isActive:
        time.sleep(_POLL_S)
        batches.update()
        if trouble := clock.trouble():
            _logger.warning("%s", trouble)
        if topics_watch:
            topics_watch.update()
    finished = True
    if query.isActive:
        _logger.info("stopping: the batch in flight is finished first")
        finished = finish_batch_and_stop(query, requests)
        batches.update()
    failure = query.exception()
    if failure is not None:
        raise failure
    _logger.info("stopped" if finished else "stopped at once: the next start repeats the last batch")
    return STOPPED if finished else CUT_SHORT


def _failure(error: Exception, config: Config, file: str) -> BalaJoinError:
    trace = f"{error}\n{getattr(error, '_stackTrace', '')}"
    _logger.debug("the query failed: %s", trace)
    if not isinstance(error, PySparkException | Py4JJavaError):
        return BalaJoinError(JVM_GONE)
    place = Place(config.kafka.bootstrap_servers, config.run.checkpoint, file)
    return explain(config.redactor(trace), place)
