"""The join as a service: from a checked configuration to a query that runs until it is told to stop."""

import logging
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.accumulators import AccumulatorTCPServer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from balajoin.checkpoints.files import Folder
from balajoin.checkpoints.lock import sole_user
from balajoin.config.models import Config
from balajoin.errors import BalaJoinError, ConfigError
from balajoin.kafka import compaction, rights, topic_ids, topics
from balajoin.kafka.client_options import librdkafka_options, spark_writer_options
from balajoin.kafka.producer import Publisher
from balajoin.kafka.topic_ids import TopicWatch
from balajoin.observe.following import Listener, Reports
from balajoin.observe.live.onlookers import Onlookers
from balajoin.observe.live.telling import Telling
from balajoin.observe.log import log_batch
from balajoin.observe.metrics.exporter import served
from balajoin.service.check import missing_topics
from balajoin.service.clock import ClockWatch
from balajoin.service.stopping import Interrupted, StopRequests, finish_batch_and_stop
from balajoin.spark.failures import JVM_GONE, Place, explain, is_refusal, trace_of
from balajoin.spark.jars import default_cache
from balajoin.spark.session import create_session
from balajoin.spark.warm_up import import_while_java_starts, start_workers_in_background

_logger = logging.getLogger(__name__)
_POLL_S = 0.2
STOPPED, CUT_SHORT = 0, 130


def run(config: Config, path: Path | None = None, *, cache: Path | None = None, verbose: bool = False) -> int:
    """Runs the join until SIGTERM or Ctrl-C. Raises a BalaJoinError of one clear line when the query fails.

    `path` is the file that messages refer to, `cache` the folder of the connector's jars.
    """
    file = str(path or "FILE")
    with StopRequests() as requests:
        try:
            spark_writer_options(config.kafka)
            require_topics(config, file)
            return _run(config, file, cache or default_cache(os.environ), verbose, requests)
        except Interrupted:
            return STOPPED


def _run(config: Config, file: str, cache: Path, verbose: bool, requests: StopRequests) -> int:
    _say_in_one_line_that_the_jvm_died()
    import_while_java_starts("balajoin.query")
    spark = _session(config, cache, verbose)
    start_workers_in_background(spark, config.join.nodes, Publisher.of(librdkafka_options(config.kafka)))
    try:
        # Only Spark knows which file system a path without a scheme is on, so nothing is locked before it runs.
        folder = Folder(spark, config.run.checkpoint)
        with sole_user(folder.local_path, create=True), _listeners(config) as listeners:
            requests.wait_for_batches()
            ids = topic_ids.verify(spark, config)
            watch = TopicWatch(config.kafka, ids, config.run.checkpoint)
            query = start(spark, config)
            try:
                return until_stopped(query, requests, listeners, watch)
            finally:
                with suppress(Py4JError, ConnectionError):
                    query.stop()  # always, because the lock is released only when the query has ended
    except (PySparkException, Py4JError, ConnectionError) as error:
        raise explained(error, config, file) from None
    finally:
        with suppress(Py4JError, ConnectionError):  # the JVM may have died
            spark.stop()


@contextmanager
def _listeners(config: Config) -> Iterator[list[Listener]]:
    """The listeners that are told of every batch."""
    with served(config) as metrics, Onlookers.of(config) as onlookers:
        if onlookers.url:
            _logger.info("live page at %s", onlookers.url)
        yield [log_batch, *metrics, Telling.of(config, onlookers.listeners)]


def _say_in_one_line_that_the_jvm_died() -> None:
    """Keeps PySpark's own threads from printing their traces as well."""

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
        redactor=config.redactor,
    )


def require_topics(config: Config, file: str) -> None:
    found = topics.look_up(config.kafka, config.topics_by_setting.values())
    rights.require(config, found=found)
    missing = missing_topics(config, found, file)
    if missing:
        raise ConfigError(missing)
    # A moment later, the join itself warns of topics that it cannot inspect.
    compacted = compaction.look(config.kafka, {"probe": config.probe, "build": config.build}).problems
    if compacted:
        raise ConfigError(compacted)


def start(spark: SparkSession, config: Config) -> StreamingQuery:
    from balajoin import query
    from balajoin.sinks.exactly_once import Delivery

    delivery = None
    if config.output.delivery == "exactly-once":
        delivery = Delivery.prepare(
            spark, kafka=config.kafka, output=config.output, settings=config.join, checkpoint=config.run.checkpoint
        )
    planned = query.plan(
        spark,
        config.probe,
        config.build,
        kafka=config.kafka,
        settings=config.join,
        cache_dir=config.run.cache_dir,
        checkpoint=config.run.checkpoint,
        delivery=delivery,
    )
    results = planned.prepare()
    writer = delivery.writer(results) if delivery else _at_least_once(results, config)
    return writer.queryName(config.name).trigger(processingTime=f"{config.run.trigger_ms} milliseconds").start()


def _at_least_once(joined: DataFrame, config: Config) -> DataStreamWriter:
    from balajoin.edge import output

    return (
        output.to_kafka_columns(joined, config.output)
        .writeStream.format("kafka")
        .options(**spark_writer_options(config.kafka))
        .option("topic", config.output.topic)
        .option("checkpointLocation", config.run.checkpoint)
    )


def until_stopped(
    query: StreamingQuery,
    requests: StopRequests,
    listeners: Sequence[Listener] = (),
    topics_watch: TopicWatch | None = None,
) -> int:
    reports, clock = Reports(query), ClockWatch()
    _logger.info("running name=%s; stop it with Ctrl-C or SIGTERM", query.name)
    while requests.count == 0 and query.isActive:
        time.sleep(_POLL_S)
        reports.tell(listeners)
        if trouble := clock.trouble():
            _logger.warning("%s", trouble)
        if topics_watch:
            topics_watch.update()
    finished = True
    if query.isActive:
        _logger.info("stopping: the batch in flight is finished first")
        finished = finish_batch_and_stop(query, requests)
        reports.tell(listeners)
    failure = query.exception()
    if failure is not None:
        raise failure
    _logger.info("stopped" if finished else "stopped at once: the next start repeats the last batch")
    return STOPPED if finished else CUT_SHORT


def explained(error: Exception, config: Config, file: str) -> BalaJoinError:
    trace = trace_of(error)
    _logger.debug("the query failed: %s", trace)
    if not isinstance(error, PySparkException | Py4JJavaError):
        return BalaJoinError(JVM_GONE)
    if is_refusal(trace):
        try:
            rights.require(config)  # clients only name the topic; the broker also tells which right is missing
        except BalaJoinError as refusal:
            return refusal
    place = Place(config.kafka.bootstrap_servers, config.run.checkpoint, file)
    return explain(config.redactor(trace), place)
