"""Sends made-up clicks and shows for examples/join.toml: a few users click far more often than others.

python examples/produce.py --servers localhost:9092 --rate 2000      # until Ctrl-C
"""

import argparse
import itertools
import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from balajoin.embedded.workload import Event, produce, zipf_keys

_CHUNK = 10_000


def main() -> None:
    options = _options()
    client = {"bootstrap.servers": options.servers, "enable.idempotence": "true", "log_level": "3"}
    shows = threading.Thread(
        target=produce,
        args=(client, "shows", events("show", options.users, 0.0, options.rate / 10), options.partitions),
        daemon=True,
    )
    shows.start()
    with suppress(KeyboardInterrupt):
        produce(client, "clicks", events("click", options.users, options.skew, options.rate), options.partitions)


def events(name: str, users: int, skew: float, rate: float) -> Iterator[Event]:
    """Yields events for ever, at a steady rate. The k-th most active user has a share ∝ 1/k^skew."""
    began = time.monotonic()
    for number, user in enumerate(_users(users, skew)):
        wait_s = began + number / rate - time.monotonic()
        if wait_s > 0:
            time.sleep(wait_s)
        now_ms = time.time_ns() // 1_000_000
        value = json.dumps({"user": f"user-{user}", "at": now_ms, name: number})
        yield Event(f"user-{user}".encode(), now_ms, value.encode())


def _users(users: int, skew: float) -> Iterator[int]:
    seed = np.random.SeedSequence().entropy
    for chunk in itertools.count():
        yield from zipf_keys(_CHUNK, users, skew, hash((seed, chunk)) & 0xFFFF_FFFF).tolist()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", default="localhost:9092", help="Kafka's bootstrap servers (default: %(default)s)")
    parser.add_argument(
        "--rate", type=float, default=2000, help="clicks per second; a tenth as many shows (default: 2000)"
    )
    parser.add_argument("--users", type=int, default=5000, help="number of users (default: %(default)s)")
    parser.add_argument("--skew", type=float, default=1.25, help="Zipf exponent of the clicks (default: %(default)s)")
    parser.add_argument("--partitions", type=int, default=4, help="partitions of each topic (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
