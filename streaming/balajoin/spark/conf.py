"""What a session must have set when the query of a join starts, whoever made the session."""

from balajoin.config.redaction import SECRET_NAMES
from balajoin.spark.partitions import SHUFFLE_PARTITIONS

REQUIRED_CONF = {
    "spark.sql.redaction.options.regex": f"{SECRET_NAMES}|url",  # or plans would show keys and logins
    "spark.sql.adaptive.enabled": "false",  # it would change the number of state partitions
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}


def required_conf(nodes: int) -> dict[str, str]:
    return {**REQUIRED_CONF, SHUFFLE_PARTITIONS: str(nodes)}
