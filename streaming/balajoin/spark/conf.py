"""The settings that any session must have when the query of a join starts."""

from balajoin.config.redaction import SECRET_NAMES
from balajoin.spark.partitions import SHUFFLE_PARTITIONS

REQUIRED_CONF = {
    "spark.sql.redaction.options.regex": f"{SECRET_NAMES}|url",  # otherwise plans would show keys and logins
    "spark.sql.adaptive.enabled": "false",  # adaptive plans would change the number of state partitions
    # When an executor is lost, Spark runs the routers again whose output was there, and ends the query if that differs
    # from before. It does: the same signals are at other places. See "Attempts that differ" in docs/correctness.md.
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}


def required_conf(nodes: int) -> dict[str, str]:
    return {**REQUIRED_CONF, SHUFFLE_PARTITIONS: str(nodes)}
