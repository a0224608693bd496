"""`python -m geo.topic SERVERS NAME PARTITIONS` creates a topic."""

import sys

from balajoin.config.models import Kafka
from balajoin.kafka import topics

if __name__ == "__main__":
    servers, name, partitions = sys.argv[1:]
    topics.create_missing(Kafka(bootstrap_servers=servers), {name: topics.Shape(int(partitions))}, 1)
