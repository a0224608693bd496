"""The strategies that the paper compares, each as one of the service's policies."""

from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from balajoin.routing.rule import PolicyName, SkewRule
from paper.cost import Detection
from paper.redistribution import BuildPath, Redistribution, redistribute
from paper.workload import Shards, Zipf, shards

_ABSENT = 1  # a hash that no key has: "no key is skewed" is also something that can be given


@dataclass(frozen=True)
class Contender:
    label: str
    policy: PolicyName
    given: bool = False
    """Whether it is told the skewed keys, as all strategies of section 5.2 are."""
    path: BuildPath = "direct"
    by_origin: bool = False
    detection: Detection = "none"


BPPR = Contender("BPPR", "bppr", given=True)
PNR = Contender("PnR", "pnr", given=True)
PRPD = Contender("PRPD", "prpd", given=True)
SFR = Contender("SFR", "sfr", given=True)
GRAHJ = Contender("GraHJ", "hash")
BALA_JOIN = Contender("Bala-Join", "bala-join", detection="online")
BPPR_DET = Contender("BPPR+Det", "bppr-det", detection="first pass")
FLOW_JOIN = Contender("Flow-Join", "flow-join", detection="online")

# Not in the paper's tables: they explain where ours differs.
SFR_BY_ORIGIN = Contender("SFR by origin", "sfr", given=True, by_origin=True)
FLOW_JOIN_BY_ORIGIN = Contender("Flow-Join by origin", "flow-join", by_origin=True, detection="online")
BALA_JOIN_BY_HOME = Contender("Bala-Join by home", "bala-join", path="by home", detection="online")


@dataclass(frozen=True)
class Run:
    contender: Contender
    setting: Zipf
    threshold: float
    balance: float


@cache
def moved(run: Run) -> Redistribution:
    data = _data(run.setting)
    who = run.contender
    return redistribute(data, who.policy, rule(data, run), who.path, who.by_origin)


@lru_cache(maxsize=8)
def _data(setting: Zipf) -> Shards:
    return shards(setting)


def rule(data: Shards, run: Run) -> SkewRule:
    return SkewRule(
        threshold=run.threshold,
        balance=run.balance,
        counters=max(1024, round(4 / run.threshold)),
        keys=(skewed_keys(data, run.threshold) or (_ABSENT,)) if run.contender.given else (),
    )


def skewed_keys(data: Shards, threshold: float) -> tuple[int, ...]:
    """Hashes of the keys that have more than this share of all probe rows."""
    counts = sum(np.bincount(shard, minlength=data.keys) for shard in data.probe)
    return tuple(data.hashes[counts > threshold * data.probe_rows].tolist())
