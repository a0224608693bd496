"""Ten rows of each topic at a time: how soon the first result comes, and how long an almost empty batch takes.

`python -m geo.few_rows SERVERS JSON` produces the rows, every three seconds. It runs on the broker's own host.
"""

import json
import statistics
import sys
import time
from dataclasses import replace
from itertools import islice

from balajoin.config.models import Kafka
from balajoin.embedded import workload
from balajoin.kafka import client_options
from geo import joining
from geo.joining import Setting
from geo.loads import Load, as_json, events
from geo.outcome import Outcome

_EVERY_S = 3
_TIMES = 70
_ROWS = 10


def run(setting: Setting, name: str, policy: str, partitions: int) -> Outcome:
    """The first rows are there before the service starts."""
    load = Load("uniform", "uniform", _TIMES * _ROWS, _TIMES * _ROWS, partitions, title=f"few-rows-{name}")
    broker = setting.cluster.hosts.broker
    for topic in (load.probe_topic, load.build_topic):
        broker.run([sys.executable, "-m", "geo.topic", setting.servers, topic, str(partitions)])
    command = [sys.executable, "-m", "geo.few_rows", setting.servers, as_json(load)]
    producer = broker.start(command, broker.folder / f"{load.name}.log")
    try:
        found = joining.run(setting, name, policy, load)
    finally:
        producer.kill()
    warm = found.batch_s[len(found.batch_s) // 2 :]
    return replace(found, rows_per_s=None, note=f"{statistics.median(warm):.2f} s a batch, of the last {len(warm)}")


def produce(servers: str, load: Load) -> None:
    options = client_options.librdkafka_options(Kafka(bootstrap_servers=servers))
    build, probe = events(load, "build"), events(load, "probe")
    for _ in range(_TIMES):
        for topic, rows in ((load.build_topic, build), (load.probe_topic, probe)):
            workload.produce(options, topic, islice(rows, _ROWS), load.partitions)
        time.sleep(_EVERY_S)


if __name__ == "__main__":
    produce(sys.argv[1], Load(**json.loads(sys.argv[2])))
