"""Made-up streams with a known skew, for the demo, the benchmarks and the tests."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from balajoin.kafka import clients


class Event(NamedTuple):
    key: bytes
    time_ms: int
    value: bytes


def zipf_keys(rows: int, keys: int, exponent: float, seed: int) -> NDArray[np.int64]:
    """Returns key numbers below `keys`. The k-th most frequent key has a share ∝ 1/k^exponent; 0 is uniform."""
    shares = 1 / np.arange(1, keys + 1, dtype=np.float64) ** exponent
    edges = np.cumsum(shares / shares.sum())
    random = np.random.default_rng(seed)
    return np.minimum(np.searchsorted(edges, random.random(rows)), keys - 1)


def produce(client_options: Mapping[str, str], topic: str, events: Iterable[Event], partitions: int) -> int:
    """Sends the events to the partitions in turn, regardless of their keys. Returns the number of events."""
    producer = clients.producer({**client_options, "linger.ms": "20", "queue.buffering.max.messages": "500000"})
    sent = 0
    for event in events:
        while True:
            try:
                producer.produce(topic, event.value, event.key, partition=sent % partitions, timestamp=event.time_ms)
                break
            except BufferError:
                producer.poll(0.05)
        sent += 1
        if sent % 10_000 == 0:
            producer.poll(0)
    if left := producer.flush(60):
        raise TimeoutError(f"{left} events were not taken by {topic}")
    return sent
