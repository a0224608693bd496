"""The first state of a rescaled checkpoint: files beside Spark's own, which the query reads at its first start."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from balajoin.checkpoints.files import Folder
from balajoin.checkpoints.reading import INPUTS, Checkpoint, InputName, Offsets
from balajoin.compute.state import HEAD
from balajoin.core import codec
from balajoin.errors import StateError
from balajoin.spark.labels import node_labels
from balajoin.spark.schemas import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import GroupedData

SEEDED = pa.schema([("node", pa.int64()), ("number", pa.int64()), ("block", pa.binary())])
"""The states of the new nodes. `node` is the node's label."""

_VERSION = 1
_FOLDER = "balajoin-seed"
_MANIFEST = f"{_FOLDER}/manifest"
_NODES = f"{_FOLDER}/nodes"
_EARLIEST = -2


@dataclass(frozen=True)
class Manifest:
    """What the new checkpoint holds besides the states of its nodes."""

    nodes: int
    offsets: Mapping[InputName, Offsets]
    owing: bool
    """Whether some node owes results."""
    sources: Mapping[int, bytes]
    """The state of each source, by its number."""

    @classmethod
    def read(cls, written: bytes) -> "Manifest":
        content = codec.decode("seed", _VERSION, written)
        with codec.refusing_damage("seed"):
            return cls(
                nodes=_node_count(content["nodes"]),
                offsets={name: _offsets(content["offsets"][name]) for name in INPUTS},
                owing=_boolean(content["owing"]),
                sources={int(number): _bytes(state) for number, state in content["sources"].items()},
            )

    def write(self) -> bytes:
        content = {
            "nodes": self.nodes,
            "offsets": dict(self.offsets),
            "owing": self.owing,
            "sources": {str(number): state for number, state in self.sources.items()},
        }
        return codec.encode("seed", _VERSION, content)


def _node_count(value: Any) -> int:
    if codec.integer(value) < 1:
        raise ValueError("not a number of nodes")
    return codec.integer(value)


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise TypeError("not true or false")
    return value


def _bytes(value: Any) -> bytes:
    if type(value) is not bytes:
        raise TypeError("not bytes")
    return value


def _offsets(topics: Any) -> Offsets:
    return {
        topic: {str(int(partition)): codec.integer(offset) for partition, offset in ends.items()}
        for topic, ends in topics.items()
    }


@dataclass(frozen=True)
class Seed:
    """What the query starts from. Empty for a checkpoint that no rescale has written."""

    offsets: Mapping[InputName, Offsets] = field(default_factory=dict)
    sources: Mapping[int, bytes] = field(default_factory=dict)
    owing: bool = False
    """Whether some node has results to emit even if no rows come."""
    states: DataFrame | None = None
    """The first state of each node, with the columns of `SEEDED`."""

    def first_offsets(self, input_: InputName, topic: str, partitions: Mapping[str, int], otherwise: str) -> str:
        """In the form of Spark's Kafka source, which needs all partitions; some may have been added since."""
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
    """Writes the manifest last, after `finish`: no query starts from a folder without a manifest."""
    place = folder.within(_NODES)
    states.write.parquet(place)
    owing = states.sparkSession.read.parquet(place).filter(f"number < {HEAD}").limit(1).count() > 0
    finish()
    folder.write(_MANIFEST, Manifest(nodes, offsets, owing, sources).write())


def read(spark: SparkSession, checkpoint: str | None, nodes: int) -> Seed:
    if checkpoint is None:
        return Seed()
    folder = Folder(spark, checkpoint)
    if not folder.exists(_FOLDER):
        return Seed()
    manifest = _manifest(folder)
    if manifest.nodes != nodes:
        raise StateError(
            f"join.nodes is {nodes}, but the checkpoint {checkpoint} was rescaled to {manifest.nodes} nodes: set it to "
            f"{manifest.nodes}"
        )
    is_taken = bool(folder.numbers("commits"))
    return Seed(
        offsets=manifest.offsets,
        sources=manifest.sources,
        owing=manifest.owing and not is_taken,
        states=spark.createDataFrame([], spark_schema(SEEDED)) if is_taken else _states(spark, folder),
    )


def unstarted(spark: SparkSession, checkpoint: str) -> Checkpoint | None:
    """A rescaled checkpoint that has finished no batch of its own yet; None for any other."""
    folder = Folder(spark, checkpoint)
    if not folder.exists(_FOLDER) or folder.numbers("commits"):
        return None
    manifest = _manifest(folder)
    labels = F.array(*map(F.lit, node_labels(manifest.nodes)))
    number = (F.array_position(labels, F.col("node")) - 1).cast("int")
    states = _states(spark, folder).withColumn("node", number)
    return Checkpoint(checkpoint, None, -1, None, manifest.nodes, manifest.offsets, states, manifest.sources)


def _states(spark: SparkSession, folder: Folder) -> DataFrame:
    return spark.read.schema(spark_schema(SEEDED)).parquet(folder.within(_NODES))


def _manifest(folder: Folder) -> Manifest:
    if not folder.exists(_MANIFEST):
        raise StateError(
            f"the rescale that should write {folder.location} was cut short: delete that folder, and rescale again"
        )
    return Manifest.read(folder.read(_MANIFEST))
