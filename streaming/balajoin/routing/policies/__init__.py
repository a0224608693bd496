"""Routing policies, one in each file: each decides to which nodes a source's probe rows go. `make` knows them."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from balajoin.core import codec
from balajoin.errors import StateError
from balajoin.routing.rule import PolicyName, SkewRule

_STATE_VERSION = 1
_ANY_SHARE = 1e-12


@dataclass(frozen=True)
class Assignment:
    targets: NDArray[np.int32]  # the node of each sent row
    entries: NDArray[np.int32]  # of each sent row: index into `keys` if it went by the skew rule, else -1
    keys: NDArray[np.int64]  # hashes of the keys that went by the skew rule in this call
    rows: NDArray[np.int32] | None = None  # which row is sent; None: every row once, in order
    # Of each sent row: whether it must meet only its matrix row's share of the build rows; None: none.
    fragments: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class HotKey:
    hash: int
    rows: int  # recent ones, estimated
    share: float  # of the source's recent rows
    nodes: tuple[int, ...]  # where its skewed rows go; home first
    key: str = ""  # one with that hash, if the batch had any; a policy itself knows only hashes


class Policy(Protocol):
    broadcasts: bool  # a skewed key's build rows go to every node, not only to those that got its rows

    def assign(self, hashes: NDArray[np.int64]) -> Assignment:
        """Routes probe rows of the source, in their order."""
        ...

    def note_build(self, hashes: NDArray[np.int64], times: NDArray[np.int64]) -> None:
        """Sees the build rows of the same source and batch, which always go home. Comes before `assign`."""
        ...

    def age(self, now_ms: int) -> None:
        """Halves counts and loads once for each half-life since the last halving. The first call starts the clock."""
        ...

    def state(self) -> bytes:
        """What `make` needs to go on from here."""
        ...

    def hot_keys(self) -> list[HotKey]:
        """Skewed keys, most frequent first, at most 32."""
        ...

    def loads(self) -> list[int]:
        """What the policy balances by node: recent skewed rows or recent work, in rows, aged; else an empty list.

        Work counts in relation to the node's weight.
        """
        ...


def make(name: PolicyName, nodes: int, source: int, rule: SkewRule, state: bytes | None = None) -> Policy:
    """The policy of that name, as `state` describes it. Starts afresh if another policy wrote the state."""
    if name not in get_args(PolicyName):
        raise ValueError(f"there is no policy {name}; there are {', '.join(get_args(PolicyName))}")
    if nodes < 1:
        raise ValueError(f"there must be at least one node, not {nodes}")
    saved = None if state is None else _read_state(name, nodes, state)
    module = import_module(f"{__name__}.{name.replace('-', '_')}")
    policy: Policy = module.create(nodes, source, rule, saved)
    return policy


def write_state(name: PolicyName, nodes: int, content: dict[str, Any]) -> bytes:
    return codec.encode("policy", _STATE_VERSION, {"policy": name, "nodes": nodes, "content": content})


def _read_state(name: PolicyName, nodes: int, state: bytes) -> dict[str, Any] | None:
    written = codec.decode("policy", _STATE_VERSION, state)
    if written["nodes"] != nodes:
        raise StateError(
            f"join.nodes is {nodes}, but the checkpoint was made with {written['nodes']}: skewed rows are spread over "
            "so many. Set it back, or use a new checkpoint location"
        )
    content: dict[str, Any] = written["content"]
    return content if written["policy"] == name else None


def rescaled(state: bytes, nodes: int) -> bytes:
    """The state for another number of nodes: keeps the counts, and forgets where rows went."""
    written = codec.decode("policy", _STATE_VERSION, state)
    return codec.encode("policy", _STATE_VERSION, {**written, "nodes": nodes})


def remembered(state: bytes) -> tuple[PolicyName, list[HotKey]]:
    """The policy that wrote the state, and the frequent keys it knows, whatever counts as skewed now."""
    written = codec.decode("policy", _STATE_VERSION, state)
    name, content = written["policy"], written["content"]
    given = content.get("given", content.get("detector", {})).get("keys", np.empty(0, np.int64))
    rule = SkewRule(
        threshold=_ANY_SHARE,
        counters=max(_widest(content), 1),
        keys=tuple(given.tolist()),
        measure="work" if "by_work" in content else "rows",
    )
    return name, make(name, written["nodes"], 0, rule, state).hot_keys()


def _widest(content: dict[str, Any]) -> int:
    """Room enough for all that the state holds."""
    inner = [_widest(value) for value in content.values() if isinstance(value, dict)]
    return max([value.shape[-1] for value in content.values() if isinstance(value, np.ndarray)] + inner, default=0)
