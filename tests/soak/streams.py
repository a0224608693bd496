"""The input rows, the output, and the results that the definition of the join requires."""

import random
import threading
import time
from collections import Counter

from confluent_kafka import Consumer, Producer, TopicPartition

from kafka_data import everything, headers_of
from oracle import Row, join

PROBE, BUILD, OUTPUT = "clicks", "shows", "joined"
PARTITIONS = 2
BEFORE_MS, AFTER_MS = 10_000, 2_000
_OUT_OF_ORDER_MS = 20_000
_PATIENCE_S = 180


class Load:
    """A thread that sends two skewed streams. Every row arrives once and in order, even if the broker fails."""

    def __init__(self, bootstrap: str, seed: int, rows_per_second: int) -> None:
        self._options = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        self._random = random.Random(seed)
        self._pause_s = 0.1
        self._probe_rows = max(1, round(rows_per_second * self._pause_s))
        self._wanted, self._ended = threading.Event(), threading.Event()
        self._idle = threading.Event()
        self._failure: BaseException | None = None
        self.sent = 0
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._thread.start()

    def resume(self) -> None:
        self._idle.clear()
        self._wanted.set()

    def pause(self) -> None:
        """Returns when all rows are acknowledged."""
        self._wanted.clear()
        if not self._idle.wait(_PATIENCE_S) or self._failure:
            raise TimeoutError("the broker did not take all rows") from self._failure

    def end(self) -> None:
        self._ended.set()
        self._wanted.set()
        self._thread.join(_PATIENCE_S)

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                producer = Producer(self._options)  # a new producer, because the topics may be new
                while self._wanted.is_set() and not self._ended.is_set():
                    self._send(producer)
                    time.sleep(self._pause_s)
                if producer.flush(_PATIENCE_S):
                    raise TimeoutError("rows were not acknowledged")
                self._idle.set()
                self._wanted.wait()
        except BaseException as failure:
            self._failure = failure
            self._idle.set()

    def _send(self, producer: Producer) -> None:
        builds = max(1, self._probe_rows // 20) if self._random.random() < 0.5 else 0
        for topic, count, hot in ((PROBE, self._probe_rows, 0.3), (BUILD, builds, 0.2)):
            for _ in range(count):
                key = b"hot" if self._random.random() < hot else b"%d" % self._random.randrange(200)
                at = int(time.time() * 1000) - self._random.randrange(_OUT_OF_ORDER_MS)
                value = b"%s-%d" % (topic.encode(), self.sent)
                producer.produce(topic, value, key, self.sent % PARTITIONS, timestamp=at)
                self.sent += 1
        producer.poll(0)


def rows_of(bootstrap: str, topic: str) -> list[Row]:
    return [
        Row(m.key(), m.timestamp()[1] * 1000, m.value(), m.partition(), m.offset())
        for m in everything(bootstrap, topic)
    ]


def expected(bootstrap: str, type_: str) -> dict[str, list[Row]]:
    """The results of all rows now in the topics: the rows of each result, by its id."""
    results = join(type_, rows_of(bootstrap, PROBE), rows_of(bootstrap, BUILD), BEFORE_MS * 1000, AFTER_MS * 1000)
    return {"-".join(map(_position, result)): [row for row in result if row] for result in results}


def _position(row: Row | None) -> str:
    return f"{row.partition}-{row.offset}" if row else "-"


class Output:
    """Reads the output topic continuously, as a `read_committed` consumer."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "soak",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(OUTPUT, p, 0) for p in range(PARTITIONS)])
        self.begin()

    def begin(self) -> None:
        """Forgets the results read so far: in a new topic, ids start again."""
        self.seen: Counter[str] = Counter()
        self.values: dict[str, tuple[bytes, bytes]] = {}

    def read(self, seconds: float = 0.3) -> int:
        """Reads the available records. Returns how many were read in all."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for message in self._consumer.consume(5_000, timeout=0.1):
                if message.error() is None:
                    id_ = headers_of(message)["balajoin-id"]
                    self.seen[id_] += 1
                    self.values[id_] = (message.key(), message.value())
        return self.seen.total()

    def close(self) -> None:
        self._consumer.close()
