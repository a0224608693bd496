"""Explains why a query failed, in one line that says what to do.

Spark wraps the cause several times, across two languages, and returns one long text. The rules below are tried on that
text in order; the first that matches makes the message.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from balajoin import errors
from balajoin.errors import BalaJoinError, ConfigError, KafkaError, StateError

_OWN_ERROR = re.compile(r"^balajoin\.errors\.(?P<kind>\w+): (?P<message>.*(?:\n(?!\s|$|===).+)*)", re.M)
_PYTHON_ERROR = re.compile(r"Traceback \(most recent call last\):\n(?:^[ \t].*\n)+(?P<cause>^\S.*)", re.M)
_JAVA_ERROR = re.compile(r"^(?:Caused by)?: (?P<cause>.+)", re.M)
_QUERY_STATE = re.compile(r"^=== Streaming Query ===$.*?(?=^\tat |^org\.apache\.|\Z)", re.M | re.S)

JVM_GONE = (
    "the Java process of Spark is gone. Start again: the checkpoint is intact. If the system killed it for its memory, "
    "lower spark.driver.memory or join.max_rows_per_batch"
)


@dataclass(frozen=True)
class Place:
    """Names for the messages: the brokers, the checkpoint, and the file of this service's settings."""

    servers: str
    checkpoint: str
    file: str


@dataclass(frozen=True)
class _Rule:
    pattern: str
    kind: Callable[[str], BalaJoinError]
    message: str

    def explain(self, text: str, place: Place) -> BalaJoinError | None:
        match = re.search(self.pattern, text, re.M)
        if match is None:
            return None
        found = {name: value or "" for name, value in match.groupdict().items()}
        return self.kind(self.message.format(**vars(place), **found))


_RULES = (
    _Rule(
        r"PBES2 SecretKeyFactory not available",
        KafkaError,
        "Java before 19 cannot decrypt the key of ssl.key.location: write it anew with `openssl pkcs8 -topk8 -v1 "
        "PBE-SHA1-3DES`, or use a newer Java, or an ssl.keystore.location (PKCS#12)",
    ),
    _Rule(
        r"errors\.InvalidConfigurationException: (?P<what>.+)",
        KafkaError,
        "Spark's client cannot use the TLS files under [kafka.options]: {what}",
    ),
    _Rule(
        r"SaslAuthenticationException|SslAuthenticationException",
        KafkaError,
        "Kafka at {servers} refused the login: check user, password and certificates under [kafka.options]",
    ),
    _Rule(
        r"GroupAuthorizationException: .*?(?P<group>\S+)$",
        KafkaError,
        "Kafka at {servers} denies access: ask for the operation Read on the consumer group {group}",
    ),
    _Rule(
        r"TransactionalIdAuthorizationException",
        KafkaError,
        "Kafka at {servers} denies access: ask for the operations Describe and Write on the transactional ids",
    ),
    _Rule(
        r"(?:Topic|Cluster)AuthorizationException: (?P<what>.+)",
        KafkaError,
        "Kafka at {servers} denies access: {what}; see with `balajoin check -c {file}` which right is missing",
    ),
    _Rule(
        r"UnknownTopicOrPartitionException|UnknownTopicIdException",
        KafkaError,
        "a topic does not exist at {servers}: see which with `balajoin check -c {file}`",
    ),
    _Rule(
        r"KAFKA_DATA_LOSS|OffsetOutOfRangeException|failOnDataLoss",
        KafkaError,
        "records were deleted from an input topic before they were read, or the topic was created anew, so results "
        "would be missing. Keep records longer (retention.ms), and start over with a new run.checkpoint",
    ),
    _Rule(
        r"No resolvable bootstrap urls|org\.apache\.kafka\.common\.errors\.(?:Timeout|Disconnect|Network)Exception"
        r"|Failed to create new KafkaAdminClient|Timed out waiting for a node|TimeoutException: Topic \S+ not present",
        KafkaError,
        "Kafka at {servers} does not answer. Start again when it does: the checkpoint is intact",
    ),
    _Rule(
        r"RecordTooLargeException: (?P<what>.+?)\.?$",
        KafkaError,
        "a result is too large for Kafka: {what}; raise max.request.size under [kafka.java] and the topic's "
        "max.message.bytes",
    ),
    _Rule(
        r"CONCURRENT_STREAM_LOG_UPDATE|Multiple streaming jobs detected|ConcurrentModificationException",
        StateError,
        "another process uses the checkpoint {checkpoint}: stop it, or give this one a checkpoint of its own",
    ),
    _Rule(
        r"AccessControlException|AccessDeniedException|Permission denied|Read-only file system",
        StateError,
        "the checkpoint {checkpoint} cannot be written: check the rights of its folder, and that its disk is writable",
    ),
    _Rule(
        r"No space left on device",
        StateError,
        "a disk is full: make room for the checkpoint {checkpoint} and for temporary files, then start again",
    ),
    _Rule(
        r"CANNOT_WRITE_STATE_STORE",
        StateError,
        "the checkpoint {checkpoint} cannot be written: check the rights of its folder, and that its disk is writable "
        "and has room",
    ),
    _Rule(
        r"CANNOT_LOAD_STATE_STORE|STATE_STORE_\w+|STDS_\w+|Error reading (?:delta|snapshot|streaming state) file"
        r"|batch \d+ (?:doesn't exist|not found in offset log)|Failed to read log file|MALFORMED_LOG|INVALID_LOG_\w+"
        r"|ChecksumException|JsonEOFException|JsonParseException|FileAlreadyExistsException"
        r"|sources in the checkpoint offsets and now there are",
        StateError,
        "the checkpoint {checkpoint} cannot be read, or is of another join or another balajoin: restore it, or start "
        "over with a new one",
    ),
    _Rule(
        r"Python worker exited unexpectedly|PYTHON_WORKER_EXITED_UNEXPECTEDLY",
        BalaJoinError,
        "a Python worker died again and again, as it does when memory is short: lower join.max_rows_per_batch, or give "
        "the machine more memory",
    ),
    _Rule(
        r"java\.lang\.OutOfMemoryError",
        BalaJoinError,
        "Spark's memory is too small: raise spark.driver.memory under [spark], or lower join.max_rows_per_batch",
    ),
)


def trace_of(error: BaseException | None) -> str:
    """All that PySpark knows of a failure, with the causes and their traces, which it keeps separately."""
    parts = []
    while error is not None:
        parts.append(f"{error}\n{getattr(error, '_stackTrace', '')}")
        error = getattr(error, "_cause", None)
    return "\n".join(parts)


def explain(text: str, place: Place) -> BalaJoinError:
    text = _QUERY_STATE.sub("", text)  # plan and offsets, which hold the user's own words
    own = _OWN_ERROR.search(text)
    if own:
        return _own_error(own["kind"], own["message"].strip())
    for rule in _RULES:
        explained = rule.explain(text, place)
        if explained is not None:
            return explained
    return BalaJoinError(f"the query failed: {innermost_cause(text)} (see all of it with --verbose)")


def is_refusal(text: str) -> bool:
    """Whether the broker denied a right, in the words of the Java client or of librdkafka."""
    return re.search(r"AuthorizationException|[aA]uthorization failed", text) is not None


def _own_error(name: str, message: str) -> BalaJoinError:
    kind = getattr(errors, name, BalaJoinError)
    if kind is ConfigError:  # it is made of problems, and here is only text
        return BalaJoinError(message)
    error = kind(message)
    assert isinstance(error, BalaJoinError)
    return error


def innermost_cause(text: str) -> str:
    """The innermost cause in a trace of Java or Python, or of one inside the other, as one line."""
    found = _PYTHON_ERROR.findall(text) or _JAVA_ERROR.findall(text)
    cause = found[-1] if found else next((line for line in text.splitlines() if line.strip()), "no reason given")
    without_package = re.sub(r"^(?:[a-z]\w*\.)+(?=[A-Z])", "", cause.strip())
    return re.sub(r"\s+SQLSTATE: \w+", "", without_package)
