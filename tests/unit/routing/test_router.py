"""The router counts the bytes of blocks that another machine has read."""

import json
from typing import Any

import pandas as pd

from balajoin.config.models import JoinSettings
from balajoin.core.blocks import encode
from balajoin.core.envelope import Packed
from balajoin.core.messages import Stamp
from balajoin.kafka.producer import Publisher
from balajoin.routing.router import Router
from balajoin.routing.rule import SkewRule
from balajoin.spark.worker import machine
from oracle import Row
from strategies import table


class NewState:
    exists = False

    def update(self, row: tuple[bytes]) -> None:
        assert row[0]

    def getCurrentProcessingTimeMs(self) -> int:  # noqa: N802 - Spark's name
        return 1


def packed(offset: int, block: bytes, read_at: str) -> dict[str, Any]:
    return vars(Packed(source=0, side="probe", partition=0, first_offset=offset, rows=1, machine=read_at, block=block))


def test_only_blocks_from_other_machines_count_as_fetched() -> None:
    blocks = [encode(table([Row(b"k", at, bytes(10 * at), 0, at)])) for at in range(3)]
    machines = [machine(), "another", "a third"]
    frame = pd.DataFrame([packed(at, block, machines[at]) for at, block in enumerate(blocks)])
    settings = JoinSettings(before="1 s", after="0 s", policy="hash", control_topic="control")
    router = Router.of(settings, SkewRule(), Publisher.of({}), "plan", {})
    (sent,) = router.route(iter([frame]), NewState(), Stamp("join", 1, "plan"))
    (note,) = [json.loads(note) for note in sent["note"] if note]
    assert note["fetched_bytes"] == len(blocks[1]) + len(blocks[2])
