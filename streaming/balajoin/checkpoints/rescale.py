"""`balajoin rescale`: makes a checkpoint with another number of nodes from that of a stopped join."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from balajoin.checkpoints import reading, seed
from balajoin.checkpoints.files import Folder
from balajoin.checkpoints.leftovers import Entry, last_batch
from balajoin.checkpoints.lock import sole_user
from balajoin.checkpoints.reading import Checkpoint, explained
from balajoin.checkpoints.rehome import Rescale
from balajoin.compute.state import HEAD, NodeState
from balajoin.config.models import Config, JoinSettings
from balajoin.config.pinned import pins
from balajoin.core.pins import refuse_others
from balajoin.core.spec import JoinSpec
from balajoin.errors import StateError
from balajoin.kafka import topic_ids
from balajoin.routing.state import SourceState
from balajoin.spark.labels import node_labels
from balajoin.spark.schemas import spark_schema
from balajoin.spark.session import create_session
from balajoin.spark.worker import settle

_SCATTERED = pa.schema([("node", pa.int64()), ("old", pa.int32()), ("number", pa.int64()), ("block", pa.binary())])

Map = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def rescale(config: Config, nodes: int, to: str, *, file: str, cache: Path, verbose: bool) -> str:
    """Writes the new checkpoint, and returns a line that says how to use it."""
    checkpoint = config.run.checkpoint
    spark = create_session(
        master=config.run.master,
        app_name=f"{config.name} rescale",
        spark_conf=config.spark,
        cache=cache,
        nodes=nodes,
        checkpoint=checkpoint,
        verbose=verbose,
    )
    try:
        with (
            explained(checkpoint, config.kafka.bootstrap_servers, file),
            sole_user(Folder(spark, checkpoint).local_path),
        ):
            change(spark, checkpoint, to, nodes, config.join, pins(config.probe, config.build, config.join))
    finally:
        spark.stop()
    return f'{to} is ready: set join.nodes = {nodes} and run.checkpoint = "{to}" in {file}, and run the join'


def change(
    spark: SparkSession, location: str, to: str, nodes: int, settings: JoinSettings, given: dict[str, Any]
) -> None:
    target = Folder(spark, to)
    if target.exists():
        raise StateError(f"{to} exists: choose another place for the new checkpoint, or delete this one first")
    old = reading.read(spark, location)
    _refuse_unfit(old, nodes, given)
    spec = replace(JoinSpec.of(settings, {**given, "join.nodes": nodes}, sources={}), nodes=nodes)
    states = rehomed(old.states, Rescale(old.nodes, old.batch, spec))
    sources = {source: SourceState.read(state).rescaled(nodes).write() for source, state in old.sources.items()}

    def finish() -> None:
        _refuse_moved(spark, old)
        topic_ids.pass_on(Folder(spark, location), target)

    try:
        seed.write(target, states, nodes, old.offsets, sources, finish)
    except BaseException:
        target.delete()
        raise


def _refuse_unfit(old: Checkpoint, nodes: int, given: dict[str, Any]) -> None:
    if old.nodes == nodes:
        raise StateError(f"the checkpoint {old.location} has {nodes} nodes already: there is nothing to do")
    if old.unfinished is not None:
        raise StateError(
            f"the join with the checkpoint {old.location} was stopped within batch {old.unfinished}, or still runs: "
            "start it, stop it with Ctrl-C or SIGTERM, which finishes the batch, and then rescale"
        )
    for row in old.states.filter(f"number = {HEAD}").collect():
        state = NodeState.read(bytes(row["block"]))
        refuse_others(state.pins, {**given, "join.nodes": old.nodes})
        last_batch(state)


def _refuse_moved(spark: SparkSession, old: Checkpoint) -> None:
    """Notices a join that runs on any machine; a lock notices only one on this machine."""
    if Folder(spark, old.location).numbers("offsets")[-1] != old.batch:
        raise StateError(f"the join with the checkpoint {old.location} still runs: stop it, and then rescale")


def rehomed(states: DataFrame, change: Rescale) -> DataFrame:
    """Builds each new node in one task: the task to which Spark assigns the node's label."""
    task = _Task(change, node_labels(change.spec.nodes))
    scattered = states.mapInArrow(task.scatter(), spark_schema(_SCATTERED))
    return scattered.repartition(change.spec.nodes, "node").mapInArrow(task.gather(), spark_schema(seed.SEEDED))


@dataclass(frozen=True)
class _Task:
    change: Rescale
    labels: list[int]

    def scatter(self) -> Map:
        def scatter(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            settle()
            for entry in (Entry(**row) for batch in batches for row in batch.to_pylist()):
                parts = [
                    (self.labels[node], entry.node, entry.number, part) for node, part in self.change.scatter(entry)
                ]
                yield pa.record_batch([pa.array(column) for column in zip(*parts, strict=True)], _SCATTERED)

        return scatter

    def gather(self) -> Map:
        def gather(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            settle()
            rows = [row for batch in batches for row in batch.to_pylist()]
            entries = [Entry(row["old"], row["number"], row["block"]) for row in rows]
            for number, block in self.change.gather(entries):
                yield pa.record_batch([[rows[0]["node"]], [number], [block]], seed.SEEDED)

        return gather
