"""How many records topics have had so far, as their broker says."""

from collections import defaultdict
from collections.abc import Mapping

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

_TIMEOUT_S = 2.0


class EndOffsets:
    """`partitions` has the number of partitions of each topic that is asked for."""

    def __init__(self, client_options: Mapping[str, str], partitions: Mapping[str, int]) -> None:
        self._client = AdminClient({**client_options, "log_level": "0"})
        self._wanted = {
            TopicPartition(topic, partition): OffsetSpec.latest()  # type: ignore[no-untyped-call]
            for topic, count in partitions.items()
            for partition in range(count)
        }

    def read(self) -> dict[str, int] | None:
        """Of all partitions of a topic together; none where the broker does not answer in time."""
        counts: dict[str, int] = defaultdict(int)
        try:
            for partition, future in self._client.list_offsets(self._wanted, request_timeout=_TIMEOUT_S).items():
                counts[partition.topic] += future.result(timeout=2 * _TIMEOUT_S).offset
        except (KafkaException, TimeoutError):
            return None
        return dict(counts)
