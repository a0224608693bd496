"""A join needs as many state partitions as it has nodes. Spark reads their number from the session when a query starts.

Between `join` and the start anybody can change that setting of the session. A checkpoint keeps the number that its
first start found, whatever the session says later.
"""

from pyspark import TaskContext

from balajoin.core.pins import refuse_others
from balajoin.errors import StateError
from balajoin.spark.labels import partition_of

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_SPARK_DEFAULT = "200"
_REMEDY = (
    "another balajoin.join, or spark.conf.set, has changed it on this session since. Start each query before you make "
    "the next join, or make each join with a session of its own: spark.newSession()"
)


def require_setting(found: str | None, nodes: int) -> None:
    """Called by the driver before a query starts."""
    if int(found or _SPARK_DEFAULT) != nodes:
        raise StateError(_difference(found, nodes))


def require_place(label: int, nodes: int, batch: int) -> None:
    """Called by a task with the group of `label`: raises if the group is not on the partition that its label names.

    It raises only on two signs together, because each alone can be harmless. If a union puts another stream before the
    join, tasks have other numbers than partitions; and a `foreachBatch` may change the setting for what it writes.
    """
    context = TaskContext.get()
    assert context is not None
    found = context.getLocalProperty(SHUFFLE_PARTITIONS)
    partitions = int(found or _SPARK_DEFAULT)
    if partitions == nodes or context.partitionId() == partition_of(label, nodes):
        return
    if batch > 0:
        refuse_others({"join.nodes": partitions}, {"join.nodes": nodes})
    raise StateError(f"{_difference(found, nodes)}. The checkpoint keeps the number: use a new checkpoint location")


def _difference(found: str | None, nodes: int) -> str:
    partitions = found or _SPARK_DEFAULT
    return f"the query's {SHUFFLE_PARTITIONS} is {partitions}, but the join was made with nodes = {nodes}: {_REMEDY}"
