"""Counts the committed records of a topic, and the ids among them that came before.

`python -m geo.counting SERVERS TOPIC` prints both numbers. It runs on the broker's own host.
"""

import sys
from typing import NamedTuple

from confluent_kafka import TopicPartition

from balajoin.kafka import clients

_ID = "balajoin-id"


class Counted(NamedTuple):
    records: int
    repeated: int


def count(servers: str, topic: str) -> Counted:
    consumer = clients.consumer({"bootstrap.servers": servers}, group="counting", tells_ends=True)
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    ended: set[int] = set()
    ids: set[bytes] = set()
    records = with_id = 0
    while len(ended) < len(partitions):
        for message in consumer.consume(20_000, 5):
            if message.error():
                ended.add(message.partition() or 0)
                continue
            records += 1
            for name, value in dict(message.headers() or ()).items():
                if name == _ID:
                    with_id += 1
                    ids.add(value if isinstance(value, bytes) else b"")
    consumer.close()
    return Counted(records, with_id - len(ids))


if __name__ == "__main__":
    print(*count(sys.argv[1], sys.argv[2]))
