"""Error texts of PySpark 4.2, shortened to the parts that tell them apart."""

import pytest

from balajoin.errors import BalaJoinError, KafkaError, StateError
from balajoin.spark.failures import Place, explain, trace_of

PLACE = Place(servers="broker:9092", checkpoint="/checkpoint", file="join.toml")

HEAD = "[STREAM_FAILED] Query [id = 8, runId = 5] terminated with exception: "
QUERY = """
=== Streaming Query ===
Identifier: [id = 8, runId = 5]
Current Available Offsets: {KafkaV2[Subscribe[failOnDataLoss]]: {"Permission denied":{"0":9}}}

Logical Plan:
WriteToMicroBatchDataSource noop-table

org.apache.spark.sql.streaming.StreamingQueryException: Job aborted
\tat org.apache.spark.sql.execution.streaming.runtime.StreamExecution.runStream(StreamExecution.scala:390)
"""
PYTHON = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "/somewhere/router.py", line 3, in route
    raise Error("x")
    ^^^^^^^^^^^^^^^^
{error}
 SQLSTATE: 38000 SQLSTATE: XXKST"""


def java(cause: str) -> str:
    return (
        f"{HEAD}Job aborted{QUERY}Caused by: org.apache.spark.SparkException: Job aborted\nCaused by: {cause}\n\tat b"
    )


@pytest.mark.parametrize(
    ("cause", "kind", "said"),
    [
        (
            "org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node",
            KafkaError,
            "broker:9092 does not",
        ),
        (
            "org.apache.kafka.common.errors.TimeoutException: Topic x not present in metadata",
            KafkaError,
            "does not answer",
        ),
        (
            "org.apache.kafka.common.config.ConfigException: No resolvable bootstrap urls given",
            KafkaError,
            "does not answer",
        ),
        (
            "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: No",
            KafkaError,
            "balajoin check -c join.toml",
        ),
        (
            "org.apache.kafka.common.errors.RecordTooLargeException: It is 9 bytes, more than the configuration.",
            KafkaError,
            "too large for Kafka: It is 9 bytes, more than the configuration; raise max.request.size",
        ),
        ("org.apache.kafka.common.errors.SaslAuthenticationException: no", KafkaError, "user, password"),
        (
            "java.lang.AssertionError: assertion failed: There are [2] sources in the checkpoint offsets and now there "
            "are [4] sources requested by the query. Cannot continue.",
            StateError,
            "another balajoin",
        ),
        (
            "org.apache.kafka.common.errors.GroupAuthorizationException: Not authorized to access group: g-1",
            KafkaError,
            "the operation Read on the consumer group g-1",
        ),
        (
            "org.apache.kafka.common.errors.TransactionalIdAuthorizationException: Transactional Id refused.",
            KafkaError,
            "Describe and Write on the transactional ids",
        ),
        (
            "org.apache.kafka.common.errors.TopicAuthorizationException: Not to [x]",
            KafkaError,
            "denies access: Not to [x]",
        ),
        ("java.security.NoSuchAlgorithmException: PBES2 SecretKeyFactory not available", KafkaError, "openssl pkcs8"),
        ("org.apache.kafka.common.errors.InvalidConfigurationException: Invalid PEM", KafkaError, "files under [kafka"),
        ("java.lang.IllegalStateException: [KAFKA_DATA_LOSS.X] gone", KafkaError, "retention.ms"),
        ("org.apache.hadoop.fs.ChecksumException: Checksum error: file:/x", StateError, "/checkpoint cannot be read"),
        ("org.apache.spark.SparkException: [CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] x", StateError, "cannot be read"),
        ("java.io.FileNotFoundException: /checkpoint/offsets (Permission denied)", StateError, "rights"),
        ("java.io.FileNotFoundException: /checkpoint/a (Read-only file system)", StateError, "its disk is writable"),
        ("org.apache.spark.SparkException: [CANNOT_WRITE_STATE_STORE.CANNOT_COMMIT] x", StateError, "and has room"),
        ("java.io.IOException: No space left on device", StateError, "disk is full"),
        ("org.apache.spark.SparkException: [CONCURRENT_STREAM_LOG_UPDATE] x", StateError, "another process"),
        ("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)", BalaJoinError, "worker died"),
        ("java.lang.OutOfMemoryError: Java heap space", BalaJoinError, "spark.driver.memory"),
    ],
)
def test_known_causes_say_what_to_do(cause: str, kind: type[BalaJoinError], said: str) -> None:
    error = explain(java(cause), PLACE)
    assert type(error) is kind
    assert said in str(error)
    assert "\n" not in str(error)


def test_our_own_errors_speak_for_themselves() -> None:
    error = explain(HEAD + PYTHON.format(error="balajoin.errors.StateError: nodes was 4, is 5: go back") + QUERY, PLACE)
    assert type(error) is StateError
    assert str(error) == "nodes was 4, is 5: go back"


def test_a_list_of_problems_stays_a_list() -> None:
    error = explain(HEAD + PYTHON.format(error="balajoin.errors.ConfigError: a.b: bad (x)\nc.d: worse") + QUERY, PLACE)
    assert str(error) == "a.b: bad (x)\nc.d: worse"


def test_other_errors_are_cut_down_to_their_cause() -> None:
    python = explain(HEAD + PYTHON.format(error="ValueError: boom") + QUERY, PLACE)
    assert str(python) == "the query failed: ValueError: boom (see all of it with --verbose)"
    spark = explain(java("org.example.OddException: odd thing SQLSTATE: 38000"), PLACE)
    assert str(spark) == "the query failed: OddException: odd thing (see all of it with --verbose)"
    at_start = explain("An error occurred while calling o406.start.\n: org.example.OddException: odd\n\tat a.b", PLACE)
    assert "OddException: odd (see" in str(at_start)
    assert str(explain("", PLACE)) == "the query failed: no reason given (see all of it with --verbose)"


def test_causes_that_pyspark_keeps_apart_are_looked_at_too() -> None:
    class CapturedError(Exception):
        def __init__(self, text: str, trace: str, cause: Exception | None = None) -> None:
            super().__init__(text)
            self._stackTrace, self._cause = trace, cause

    disk = CapturedError(
        "[CANNOT_LOAD_STATE_STORE.X] no", "a\nCaused by: java.io.IOException: /a (Read-only file system)"
    )
    error = explain(trace_of(CapturedError(f"{HEAD}[CANNOT_LOAD_STATE_STORE.X] no{QUERY}", "", disk)), PLACE)
    assert "cannot be written" in str(error)
