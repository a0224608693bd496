"""The rows of a run: how keys are spread over probe and build rows, and how many pairs the join must find.

`python -m geo.loads SERVERS JSON` produces a load. It runs on the broker's own host, so that no link is used.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from balajoin.config.models import Kafka
from balajoin.embedded import workload
from balajoin.kafka import client_options, topics

ProbeKeys = Literal["one-key", "half-one-key", "zipf-1.0", "zipf-1.25", "zipf-1.5", "uniform"]
BuildKeys = Literal["uniform", "zipf"]
PROBE_KEYS: tuple[ProbeKeys, ...] = get_args(ProbeKeys)
BUILD_KEYS: tuple[BuildKeys, ...] = get_args(BuildKeys)

START_MS = 1_750_000_000_000
SPAN_MS = 600_000
_LONG_MS = 3_600_000  # longer than the rows' span: every pair of a key matches
_BUILD_EXPONENT = 1.0
_RESULTS_A_ROW = 2  # of probe rows, where build keys are skewed as well
_VALUE = b'{"page":"/products/0123456789","user":"abcdefghijkl","n":12345}'
_SEEDS = {"probe": 1, "build": 2}

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Load:
    probe_keys: ProbeKeys
    build_keys: BuildKeys
    probe_rows: int
    build_rows: int
    partitions: int
    title: str = ""
    """In place of a name made of the above."""

    @property
    def name(self) -> str:
        if self.title:
            return self.title
        skewed_build = "-build-zipf" if self.build_keys == "zipf" else ""
        return f"{self.probe_keys}{skewed_build}-{self.build_rows}-{self.probe_rows}"

    @property
    def probe_topic(self) -> str:
        return f"probe-{self.name}"

    @property
    def build_topic(self) -> str:
        return f"build-{self.name}"

    @property
    def rows(self) -> int:
        return self.probe_rows + self.build_rows

    @cached_property
    def interval_ms(self) -> int:
        """How far apart in time two rows may match.

        Where keys of both sides are skewed, a long interval would give billions of pairs, so it is made shorter.
        """
        if self.build_keys == "uniform":
            return _LONG_MS
        low, high = 1, SPAN_MS
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.pairs(middle) > _RESULTS_A_ROW * self.probe_rows else (middle, high)
        return low

    @cached_property
    def expected_results(self) -> int:
        return self.pairs(self.interval_ms)

    def pairs(self, interval_ms: int) -> int:
        """The number of results by the join's definition."""
        far = 1 << 41  # more than any time in ms
        build = np.sort(self.keys_of("build") * far + times(self.build_rows))
        probe = self.keys_of("probe") * far + times(self.probe_rows)
        first = np.searchsorted(build, probe - interval_ms, "left")
        return int((np.searchsorted(build, probe + interval_ms, "right") - first).sum())

    def keys_of(self, side: Literal["probe", "build"]) -> Numbers:
        rows, keys, seed = (self.probe_rows, self.build_rows, _SEEDS[side])
        if side == "build":
            if self.build_keys == "uniform":
                return np.arange(self.build_rows, dtype=np.int64)
            return workload.zipf_keys(self.build_rows, keys, _BUILD_EXPONENT, seed)
        if self.probe_keys == "one-key":
            return np.zeros(rows, np.int64)
        random = np.random.default_rng(seed)
        spread = random.integers(0, keys, rows)
        if self.probe_keys == "half-one-key":
            return np.where(random.random(rows) < 0.5, 0, spread)
        if self.probe_keys == "uniform":
            return spread
        return workload.zipf_keys(rows, keys, float(self.probe_keys.removeprefix("zipf-")), seed)


def times(rows: int) -> Numbers:
    """Evenly spaced, in ms since the first; rows are produced in this order."""
    return np.arange(rows, dtype=np.int64) * SPAN_MS // rows


def produce(load: Load, servers: str) -> None:
    kafka = Kafka(bootstrap_servers=servers)
    shape = topics.Shape(load.partitions)
    topics.create_missing(kafka, {load.probe_topic: shape, load.build_topic: shape}, 1)
    options = client_options.librdkafka_options(kafka)
    for topic, side in ((load.build_topic, "build"), (load.probe_topic, "probe")):
        workload.produce(options, topic, events(load, "build" if side == "build" else "probe"), load.partitions)


def events(load: Load, side: Literal["probe", "build"]) -> Iterator[workload.Event]:
    keys = load.keys_of(side)
    for key, at in zip(keys.tolist(), (times(len(keys)) + START_MS).tolist(), strict=True):
        yield workload.Event(b"user-%08d" % key, at, _VALUE)


def as_json(load: Load) -> str:
    return json.dumps(asdict(load))


if __name__ == "__main__":
    produce(Load(**json.loads(sys.argv[2])), sys.argv[1])
