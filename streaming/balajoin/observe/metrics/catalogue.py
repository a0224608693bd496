"""Every metric by its name, unit and labels. docs/metrics.md has the same table; a test compares them.

All have the label `join`, the name of the query. Every other label has a small, fixed set of values: nodes,
sources, streams, or the words given here. `key` has the hashes of the most frequent skewed keys, at most `HOT_KEYS` at
a time.
"""

from dataclasses import dataclass
from typing import Literal

HOT_KEYS = 10


@dataclass(frozen=True)
class Metric:
    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


def _counter(name: str, help_: str, *labels: str) -> Metric:
    return Metric(name, "counter", help_, labels)


def _gauge(name: str, help_: str, *labels: str) -> Metric:
    return Metric(name, "gauge", help_, labels)


def _histogram(name: str, help_: str, *buckets: float) -> Metric:
    return Metric(name, "histogram", help_, buckets=buckets)


# --- what runs --------------------------------------------------------------------------------------------------------

BUILD_INFO = _gauge("balajoin_build_info", "Always 1; which software runs.", "version", "pyspark", "python")
JOIN_INFO = _gauge(
    "balajoin_join_info", "Always 1; what is joined, and how.", "type", "policy", "probe_topic", "build_topic"
)
START = _gauge("balajoin_start_timestamp_seconds", "When this process began to run the join.")
NODES = _gauge("balajoin_nodes", "Nodes (state partitions) of the join.")
EXECUTORS = _gauge("balajoin_executors", "Spark executors at the end of the last batch; the driver in local mode.")
BALANCE_LIMIT = _gauge(
    "balajoin_balance_limit_ratio",
    'How large B may become: the setting join.skew.balance. Not set with measure = "work".',
)
SKEW_THRESHOLD = _gauge("balajoin_skew_threshold_ratio", "The setting join.skew.threshold: a key with more is skewed.")
RETENTION = _gauge("balajoin_retention_seconds", "Event time that the state covers: before, after and lateness.")

# --- rows -------------------------------------------------------------------------------------------------------------

INPUT_ROWS = _counter("balajoin_input_rows_total", "Records read, dead letters among them.", "stream")
DEAD_LETTERS = _counter("balajoin_dead_letters_total", "Records without key or time.", "stream")
LATE_ROWS = _counter("balajoin_late_rows_total", "Rows below the watermark.", "stream")
NODE_ROWS = _counter(
    "balajoin_node_rows_total",
    "Rows that nodes got: probe rows by hash (home) or because their key is skewed, build rows, replicas.",
    "node",
    "route",
)
OUTPUT_ROWS = _counter("balajoin_output_rows_total", "Results.", "node")
BUSY = _counter("balajoin_node_busy_seconds_total", "CPU time of the nodes' join work.", "node")
TRAFFIC = _counter(
    "balajoin_traffic_bytes_total",
    "Bytes sent to another node: of rows in compressed blocks, of replicas and signals as Kafka gets them; fetched: "
    "sent to the router from another machine.",
    "kind",
)

# --- skew -------------------------------------------------------------------------------------------------------------

BALANCE = _gauge(
    "balajoin_balance_ratio",
    'B of recent skewed rows, or of work with measure = "work": (max - min) / max over the nodes.',
)
SOURCE_BALANCE = _gauge("balajoin_source_balance_ratio", "The same of what one source sent.", "source")
WORK_EXCESS = _gauge(
    "balajoin_work_excess_ratio",
    "Work of the busiest node in the last batch, over the mean of all nodes, minus 1. Work is rows and pairs.",
)
HOT_KEYS_KNOWN = _gauge("balajoin_hot_keys", "Keys that are skewed now, at most 32 of each source.")
HOT_KEY_SHARE = _gauge(
    "balajoin_hot_key_share_ratio", "The key's share of recent probe rows, for the most frequent keys.", "key"
)
HOT_KEY_NODES = _gauge("balajoin_hot_key_nodes", "|U(x)|: nodes that get the key's probe rows.", "key")
SIGNALS = _counter(
    "balajoin_signals_total", "Requests for build rows: new by a source, repeated by a node that waits.", "kind"
)
PULLS = _counter("balajoin_pulls_total", "Keys whose build rows were sent to another node, for the first time.")
PULLED_ROWS = _counter("balajoin_pulled_rows_total", "Build rows sent by these pulls.")
FORWARDED_ROWS = _counter("balajoin_forwarded_rows_total", "Build rows sent on as they came, under a lease.")
PULL_BATCHES = _histogram(
    "balajoin_pull_wait_batches", "Batches that a key's probe rows waited for its build rows.", 1, 2, 3, 4, 8, 16, 32
)
PULL_SECONDS = _histogram(
    "balajoin_pull_wait_seconds",
    "Seconds that a key's probe rows waited for its build rows.",
    0.5,
    1,
    2,
    3,
    5,
    8,
    13,
    21,
    34,
    60,
    120,
    300,
)
LEASES = _gauge("balajoin_leases", "Promises of a home node to forward a key's build rows to another node.", "node")
PINS = _gauge("balajoin_pins", "Keys whose probe rows wait at the node for build rows.", "node")
SKIPPED = _counter(
    "balajoin_skipped_records_total",
    "Skipped control and replica records: of somebody else (foreign), of a run or attempt given up (stale).",
    "reason",
)
DELAYED = _counter("balajoin_delayed_shipments_total", "Shipments that came later than the next batch.")
INCOMPLETE = _counter(
    "balajoin_incomplete_pulls_total", "Pulls repeated so late that some of the key's build rows may have expired."
)

# --- state and time ---------------------------------------------------------------------------------------------------

STATE_ROWS = _gauge("balajoin_state_rows", "Rows that the node stores.", "node")
STATE_BYTES = _gauge("balajoin_state_bytes", "Bytes of the stored rows, uncompressed, as in the local files.", "node")
WAITING_ROWS = _gauge(
    "balajoin_waiting_rows", "Stored rows of an outer join that may yet meet their first match.", "node"
)
WATERMARK = _gauge("balajoin_watermark_timestamp_seconds", "Event time that the stream has reached.", "stream")
INPUT_LAG = _gauge(
    "balajoin_input_lag_records", "Records in the topic that were still unread, as offsets count them.", "stream"
)
BATCH_SECONDS = _histogram(
    "balajoin_batch_duration_seconds", "Time of a batch.", 0.1, 0.2, 0.5, 1, 2, 3, 5, 8, 13, 21, 34, 60, 120, 300
)
PHASE_SECONDS = _counter("balajoin_batch_phase_seconds_total", "Time of batches by Spark's phases.", "phase")
LAST_BATCH = _gauge("balajoin_last_batch_timestamp_seconds", "When the last batch ended.")
LAST_PROGRESS = _gauge(
    "balajoin_last_progress_timestamp_seconds", "When a batch last ended, or the query last looked for rows in vain."
)

CATALOGUE: tuple[Metric, ...] = tuple(value for value in globals().values() if isinstance(value, Metric))
