"""Notices topics that were deleted and created anew: they have other records at the offsets that were read.

Spark notices that only if the new topic is shorter than the part that was read of the old one; otherwise it goes on in
the middle of the new topic. So the service keeps Kafka's topic ids in the checkpoint, beside Spark's logs.
"""

import json
import logging
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import SparkSession

from balajoin.checkpoints.files import Folder
from balajoin.config.models import Config, Kafka
from balajoin.errors import KafkaError, StateError
from balajoin.kafka import topics

_logger = logging.getLogger(__name__)
_FILE = "balajoin-topics.json"
_LOOK_EVERY_S = 10


@dataclass(frozen=True)
class TopicIds:
    """The ids of one cluster's topics by name. A copy in another cluster has another id, and does not count as new."""

    cluster: str
    ids: Mapping[str, str]

    def renewed(self, now: "TopicIds") -> list[str]:
        """The topics that were created anew since."""
        if now.cluster != self.cluster:
            return []
        return [name for name, id_ in now.ids.items() if self.ids.get(name, id_) != id_]


def read_topics(config: Config) -> list[str]:
    """The topics whose offsets are in the checkpoint."""
    join = config.join
    return [*dict.fromkeys([config.probe.topic, config.build.topic, join.control_topic, join.replica_topic])]


def verify(spark: SparkSession, config: Config) -> TopicIds:
    """Returns the ids of the topics that are read. Raises if a topic was created anew since the checkpoint read it."""
    names, checkpoint = read_topics(config), config.run.checkpoint
    now = TopicIds(*topics.ids(config.kafka, names))
    folder = Folder(spark, checkpoint)
    if folder.exists(_FILE):
        try:
            known = TopicIds(**json.loads(folder.read(_FILE)))
        except (TypeError, ValueError):
            raise StateError(
                f"{checkpoint}/{_FILE} is damaged: restore it, or delete it if no topic was created anew"
            ) from None
        _refuse(known.renewed(now), checkpoint)
        if known == now:
            return now
    folder.write(_FILE, json.dumps(asdict(now)).encode(), replace=True)
    return now


def pass_on(old: Folder, new: Folder) -> None:
    """Copies the topic ids to a checkpoint that continues from the old one."""
    if old.exists(_FILE):
        new.write(_FILE, old.read(_FILE), replace=True)


def _refuse(renewed: Iterable[str], checkpoint: str) -> None:
    if named := ", ".join(renewed):
        raise KafkaError(
            f"topic {named} was deleted and created anew since the checkpoint {checkpoint} read it, so results would "
            "be missing: start over with a new run.checkpoint"
        )


class TopicWatch:
    """Checks every few seconds that the topics are still the same, without ever waiting for the answer."""

    def __init__(self, kafka: Kafka, known: TopicIds, checkpoint: str) -> None:
        self._describe = topics.describer(kafka)
        self._known = known
        self._checkpoint = checkpoint
        self._asked: Mapping[str, Future[Any]] = {}
        self._next_look = 0.0

    def update(self) -> None:
        if self._asked and all(answer.done() for answer in self._asked.values()):
            answers = {name: answer.result() for name, answer in self._asked.items() if answer.exception() is None}
            self._asked = {}
            now = TopicIds(self._known.cluster, {name: str(topic.topic_id) for name, topic in answers.items()})
            _refuse(self._known.renewed(now), self._checkpoint)
        elif not self._asked and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _LOOK_EVERY_S
            self._asked = self._describe(list(self._known.ids))
