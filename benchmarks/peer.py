"""One of the queries to compare as a process of its own, so that it can be measured beside `balajoin run`.

Runs until it is terminated, and tells of each batch on standard error, in the words of balajoin's log.
"""

import argparse
import sys
import time
from pathlib import Path

from bare import BARE
from bench import session, start_to_kafka
from contenders import SPARK_JOINS, TUNED, Workload, writer_options

from balajoin.config.models import Kafka

_UNITS = {"s": "seconds", "min": "minutes", "h": "hours", "d": "days"}
PEERS = {contender.name: contender for contender in (*SPARK_JOINS, TUNED[0], BARE)}


def command(name: str, servers: Kafka, load: str, out: str, folder: Path, options: argparse.Namespace) -> list[str]:
    """The command that starts a peer. The options are those of `service.py`."""
    given = {
        "--name": name,
        "--servers": servers.bootstrap_servers,
        "--load": load,
        "--out": out,
        "--checkpoint": str(folder / "checkpoint"),
        "--batch": str(options.batch),
        "--interval": options.interval,
        "--lateness": options.lateness,
    }
    return [sys.executable, __file__, *(word for pair in given.items() for word in pair)]


def main() -> None:
    options = _options()
    servers, contender = Kafka(bootstrap_servers=options.servers), PEERS[options.name]
    load = Workload(
        servers,
        f"probe-{options.load}",
        f"build-{options.load}",
        options.batch,
        interval=_spelt_out(options.interval),
        lateness=_spelt_out(options.lateness),
    )
    with session() as spark:
        contender.prepare(spark)
        frame = contender.make(spark, load)
        query = start_to_kafka(frame, writer_options(servers, tuned=True), options.out, Path(options.checkpoint))
        told = -1
        while query.isActive:
            for progress in query.recentProgress:
                if progress["batchId"] > told and progress["numInputRows"]:
                    told = progress["batchId"]
                    rows_in, rows_out = progress["numInputRows"], max(progress["sink"]["numOutputRows"], 0)
                    duration_ms = progress["durationMs"]["triggerExecution"]
                    line = f"batch={told} rows_in={rows_in} rows_out={rows_out} duration_ms={duration_ms}"
                    print(line, file=sys.stderr, flush=True)
            time.sleep(0.1)


def _spelt_out(duration: str) -> str:
    """The duration as Spark reads it."""
    number, _, unit = duration.partition(" ")
    return f"{number} {_UNITS[unit]}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", choices=PEERS, required=True)
    parser.add_argument("--batch", type=int, required=True)
    for name in ("--servers", "--load", "--out", "--checkpoint", "--interval", "--lateness"):
        parser.add_argument(name, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
