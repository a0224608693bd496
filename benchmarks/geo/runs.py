"""All that a matrix may hold: balajoin's policies, its peers, and faults, each by a name that an option can give."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import get_args

from balajoin.routing.rule import PolicyName
from geo import faults, few_rows, flink, joining, spark_join
from geo.joining import Setting
from geo.loads import Load
from geo.outcome import Outcome

POLICIES: tuple[PolicyName, ...] = get_args(PolicyName)
Start = Callable[[Setting, str, Load], Outcome]


@dataclass(frozen=True)
class Run:
    name: str
    start: Start
    """Called with the setting, the name of the output topic, and the load."""


def _policy(policy: PolicyName, setting: Setting, name: str, load: Load) -> Outcome:
    return joining.run(setting, name, policy, load)


def _by_rows(setting: Setting, name: str, load: Load) -> Outcome:
    return joining.run(setting, name, "bala-join", load, measure="rows")


def _spark(store: spark_join.Store, setting: Setting, name: str, load: Load) -> Outcome:
    return spark_join.run(setting, name, store, load)


def _flink(backend: flink.Backend, setting: Setting, name: str, load: Load) -> Outcome:
    return flink.run(setting, name, backend, load)


def _fault(fault: faults.Fault, setting: Setting, name: str, load: Load) -> Outcome:
    return faults.run(setting, name, fault, "bala-join", load)


def _few_rows(setting: Setting, name: str, load: Load) -> Outcome:
    return few_rows.run(setting, name, "bala-join", load.partitions)


_ALL = (
    *(Run(policy, partial(_policy, policy)) for policy in POLICIES),
    Run("bala-join-rows", _by_rows),
    Run("spark", partial(_spark, "default store")),
    Run("spark-rocksdb", partial(_spark, "RocksDB")),
    Run("flink", partial(_flink, "RocksDB")),
    Run("flink-heap", partial(_flink, "heap")),
    Run("few-rows", _few_rows),
    *(Run(fault, partial(_fault, fault)) for fault in faults.FAULTS),
)
NAMES = tuple(run.name for run in _ALL)
CONTENDERS = tuple(name for name in NAMES if name not in (*faults.FAULTS, "few-rows"))


def named(names: Sequence[str]) -> list[Run]:
    by_name = {run.name: run for run in _ALL}
    return [by_name[name] for name in names]
