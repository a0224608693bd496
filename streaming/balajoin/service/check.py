"""`balajoin check`: finds what is wrong with topics, rights and expressions, without running the join."""

import logging
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from balajoin.config.loading import lines_in, with_lines
from balajoin.config.models import Config
from balajoin.errors import ConfigError, KafkaError, Problem
from balajoin.kafka import client_options, compaction, rights, topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_logger = logging.getLogger(__name__)
_WRITTEN = ("output.topic", "join.dead_letter_topic", "join.late_topic")


def check(config: Config, path: Path, *, cache: Path) -> list[Problem]:
    """Returns every problem with its line. Minor findings go to the log as warnings."""
    lines = lines_in(path)
    found = [*client_problems(config), *expression_problems(config, cache)]
    try:
        seen = topics.look_up(config.kafka, config.topics_by_setting.values())
    except KafkaError as error:
        found.append(Problem("kafka.bootstrap_servers", str(error)))
    except ConfigError as error:
        found.extend(error.problems)
    else:
        found.extend(rights.problems(config, seen))
        found.extend(missing_topics(config, seen, str(path)))
        counts = {name: topic.partitions for name, topic in seen.items() if topic is not topics.FORBIDDEN}
        found.extend(commit_topic_problems(config, counts))
        compacted = compaction.look(config.kafka, {"probe": config.probe, "build": config.build})
        found.extend(compacted.problems)
        for warning in with_lines([*partition_warnings(config, counts), *compacted.warnings], lines):
            _logger.warning("%s", warning)
    return sorted(with_lines(dict.fromkeys(found), lines), key=lambda problem: problem.line or 0)


def client_problems(config: Config) -> list[Problem]:
    try:
        client_options.java_options(config.kafka)
    except ConfigError as error:
        return list(error.problems)
    return []


def missing_topics(config: Config, found: Collection[str], file: str) -> list[Problem]:
    return [
        Problem(setting, f"topic {topic} does not exist", f"create it: balajoin topics -c {file}")
        for setting, topic in config.topics_by_setting.items()
        if topic not in found
    ]


def commit_topic_problems(config: Config, counts: dict[str, int]) -> list[Problem]:
    from balajoin.sinks.exactly_once import commit_topic_problem

    topic = config.output.commit_topic
    problem = commit_topic_problem(topic, counts[topic], config.join.nodes) if topic in counts else None
    return [problem] if problem else []


def partition_warnings(config: Config, counts: dict[str, int]) -> list[Problem]:
    wanted = config.topics.partitions
    return [
        Problem(
            setting,
            f"{topic} has {counts[topic]} partitions, topics.partitions is {wanted}",
            "create the topic anew with that number, or change topics.partitions",
        )
        for setting in _WRITTEN
        if (topic := config.topics_by_setting[setting]) in counts and counts[topic] != wanted
    ]


def expression_problems(config: Config, cache: Path) -> list[Problem]:
    from balajoin.spark.session import create_session

    spark = create_session(
        master="local[1]", app_name=config.name, spark_conf=config.spark, cache=cache, redactor=config.redactor
    )
    try:
        return _analyse(spark, config)
    finally:
        spark.stop()


def _analyse(spark: "SparkSession", config: Config) -> list[Problem]:
    from balajoin.compute.pairs import JOINED
    from balajoin.edge import intake, output, results
    from balajoin.spark.schemas import spark_schema

    try:
        types = intake.types(spark, config.probe, config.build)
    except ConfigError as error:
        return list(error.problems)
    joined = results.named(spark.createDataFrame([], spark_schema(JOINED)), *types, config.join.type)
    return output.expression_problems(spark, joined, config.output)
