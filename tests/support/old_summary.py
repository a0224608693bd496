"""The summary of the checkpoint in `data/state-2`."""

import old_states
from balajoin.checkpoints.reading import InputName, Offsets
from balajoin.checkpoints.summary import CheckpointSummary, Described, Describer, node_summaries, source_summary
from balajoin.spark.labels import source_of

HOT = 3781523718190330400
ROWS = [
    {"probe": 68, "fragment": 0, "build": 26, "replicas": 0, "waiting": 0},
    {"probe": 109, "fragment": 0, "build": 44, "replicas": 0, "waiting": 0},
]


def described() -> list[Described]:
    nodes, _ = old_states.states(2)
    describer = Describer(2, (HOT, 0))
    return [describer.describe(node, *entry) for node, entries in nodes.items() for entry in entries.items()]


def old_summary() -> CheckpointSummary:
    _, sources = old_states.states(2)
    pins, nodes, keys = node_summaries(described())
    found = sorted((source_of(label, 2), state) for label, state in sources.items())
    offsets: dict[InputName, Offsets] = {"probe": {"probe": {"0": 102, "1": 75}}, "build": {"build": {"10": 1, "9": 2}}}
    return CheckpointSummary(
        "here", "a-b", 2, 3, pins, offsets, nodes, [source_summary(*source) for source in found], keys
    )
