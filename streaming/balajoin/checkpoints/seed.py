"""The first state of a checkpoint that was made of another: files beside Spark's own, for the query's first start."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from balajoin.checkpoints.files import Folder
from balajoin.checkpoints.reading import Checkpoint, InputName, Offsets
from balajoin.compute.state import HEAD
from balajoin.core import codec
from balajoin.errors import StateError
from balajoin.spark.labels import node_labels

if TYPE_CHECKING:
    from pyspark.sql import GroupedData

SEEDED = "node bigint, number bigint, block binary"

_VERSION = 1
_FOLDER = "balajoin-seed"
_MANIFEST = f"{_FOLDER}/manifest"
_NODES = f"{_FOLDER}/nodes"
_EARLIEST = -2


@dataclass(frozen=True)
class Seed:
    """Nothing at all, for a checkpoint that was not made of another."""

    offsets: Mapping[InputName, Offsets] = field(default_factory=dict)
    sources: Mapping[int, bytes] = field(default_factory=dict)
    owing: bool = False
    """Some node has results to hand out, whether rows come or not."""
    states: DataFrame | None = None
    """What each node's state holds at first, by the node's label."""

    def first_offsets(self, input_: InputName, topic: str, partitions: Mapping[str, int], otherwise: str) -> str:
        """As Spark's Kafka source takes them: it wants all partitions, and some may have been added."""
        if input_ not in self.offsets:
            return otherwise
        read = self.offsets[input_].get(topic)
        if read is None:
            raise StateError(
                f"the checkpoint was made for a join that reads {', '.join(self.offsets[input_])}, not {topic}: set "
                "the topic back, or use a new checkpoint location"
            )
        every = {str(number): _EARLIEST for number in range(partitions[topic])}
        return json.dumps({topic: {**every, **read}})

    def first_states(self) -> "GroupedData | None":
        return None if self.states is None else self.states.groupBy("node")


def write(
    folder: Folder,
    states: DataFrame,
    nodes: int,
    offsets: Mapping[InputName, Offsets],
    sources: Mapping[int, bytes],
    finish: Callable[[], None],
) -> None:
    """The manifest comes last, after `finish`: without it nothing starts from here."""
    place = folder.within(_NODES)
    states.write.parquet(place)
    owing = states.sparkSession.read.parquet(place).filter(f"number < {HEAD}").limit(1).count() > 0
    content = {
        "nodes": nodes,
        "offsets": dict(offsets),
        "owing": owing,
        "sources": {str(source): state for source, state in sources.items()},
    }
    finish()
    folder.write(_MANIFEST, codec.encode("seed", _VERSION, content))


def read(spark: SparkSession, checkpoint: str | None, nodes: int) -> Seed:
    if checkpoint is None:
        return Seed()
    folder = Folder(spark, checkpoint)
    if not folder.exists(_FOLDER):
        return Seed()
    content = _manifest(folder)
    if content["nodes"] != nodes:
        raise StateError(
            f"join.nodes is {nodes}, but the checkpoint {checkpoint} was rescaled to {content['nodes']}: set it to that"
        )
    is_taken = bool(folder.numbers("commits"))
    return Seed(
        offsets=content["offsets"],
        sources=content["sources"],
        owing=content["owing"] and not is_taken,
        states=spark.createDataFrame([], SEEDED)
        if is_taken
        else spark.read.schema(SEEDED).parquet(folder.within(_NODES)),
    )


def unstarted(spark: SparkSession, checkpoint: str) -> Checkpoint | None:
    """What a checkpoint holds that was made of another and has finished no batch of its own."""
    folder = Folder(spark, checkpoint)
    if not folder.exists(_FOLDER) or folder.numbers("commits"):
        return None
    content = _manifest(folder)
    labels = F.array(*map(F.lit, node_labels(content["nodes"])))
    number = (F.array_position(labels, F.col("node")) - 1).cast("int")
    states = spark.read.schema(SEEDED).parquet(folder.within(_NODES)).withColumn("node", number)
    return Checkpoint(checkpoint, None, -1, None, content["nodes"], content["offsets"], states, content["sources"])


def _manifest(folder: Folder) -> dict[str, Any]:
    if not folder.exists(_MANIFEST):
        raise StateError(
            f"the rescale that should write {folder.location} was cut short: delete that folder, and rescale again"
        )
    content = codec.decode("seed", _VERSION, folder.read(_MANIFEST))
    return {**content, "sources": {int(source): state for source, state in content["sources"].items()}}
