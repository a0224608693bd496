"""Routes two tables by one of the service's policies, and counts what each node sends, takes in and joins.

The policy objects are those of `balajoin.routing.policies`, one for each node's shard. This module only adds up. It
counts rows by key and node, so that no pair has to be made.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from balajoin.core.hashing import homes
from balajoin.core.matrix import matrix
from balajoin.routing import policies
from balajoin.routing.policies import Assignment
from balajoin.routing.rule import PolicyName, SkewRule
from paper.workload import Keys, Shards

Counts = NDArray[np.int64]
BuildPath = Literal["direct", "by home"]
"""How build rows of skewed keys reach their nodes: from their shard, or from the key's home, which got them first."""


@dataclass(frozen=True)
class Redistribution:
    """All arrays are by node."""

    sent: NDArray[np.float64]
    """Rows that left the node over the network."""
    received: NDArray[np.float64]
    """Rows that came over the network."""
    taken: NDArray[np.float64]
    """Rows that the node joins: probe, build and copies, its own included."""
    results: NDArray[np.float64]
    skewed: Counts
    """Probe rows that the policy placed as skewed."""
    probe_read: Counts
    """Probe rows of the node's own shard."""


def redistribute(
    data: Shards, name: PolicyName, rule: SkewRule, path: BuildPath = "direct", by_origin: bool = False
) -> Redistribution:
    """`by_origin`: fragments go to the column of the node that holds them, and not to the columns in turn."""
    nodes = data.nodes
    count = _Counter(data, path)
    for source in range(nodes):
        whole_shard = max(len(data.probe[source]), 1)
        policy = policies.make(name, nodes, source, replace(rule, first_pass_rows=whole_shard))
        build = data.hashes[data.build[source]]
        policy.note_build(build, np.zeros_like(build))  # a table's rows have no times
        assignment = policy.assign(data.hashes[data.probe[source]])
        if by_origin:
            assignment = in_own_column(assignment, source, nodes)
        count.add_probe(source, data.probe[source], assignment, policy.broadcasts)
    count.add_build()
    read = np.array([len(shard) for shard in data.probe])
    return Redistribution(count.sent, count.received, count.taken, count.results(), count.skewed, read)


def in_own_column(assignment: Assignment, source: int, nodes: int) -> Assignment:
    """The assignment as the paper describes SFR: a row is copied along the column of the node that holds the row."""
    if assignment.fragments is None:
        return assignment
    _, columns = matrix(nodes)
    moved = assignment.targets // columns * columns + source % columns
    return replace(assignment, targets=np.where(assignment.fragments, moved, assignment.targets).astype(np.int32))


class _Counter:
    def __init__(self, data: Shards, path: BuildPath) -> None:
        nodes, keys = data.nodes, data.keys
        self.data, self.path, self.nodes = data, path, nodes
        self.sent, self.received, self.taken = np.zeros(nodes), np.zeros(nodes), np.zeros(nodes)
        self.skewed = np.zeros(nodes, np.int64)
        self.whole = np.zeros((keys, nodes), np.int64)  # probe rows that meet all build rows of their key
        self.fragments = np.zeros((keys, nodes), np.int64)  # those that meet only their matrix row's share
        self.needs_all = np.zeros((keys, nodes), np.bool_)
        self.needs_share = np.zeros((keys, nodes), np.bool_)
        self.homes = homes(data.hashes, nodes)
        self.build = np.stack([np.bincount(shard, minlength=keys) for shard in data.build])

    def add_probe(self, source: int, numbers: Keys, assignment: Assignment, broadcasts: bool) -> None:
        numbers = numbers if assignment.rows is None else numbers[assignment.rows]
        fragments = assignment.fragments
        if fragments is None:
            fragments = np.zeros(len(numbers), np.bool_)
        skewed = assignment.entries >= 0
        self.whole += self._by_key(numbers, assignment.targets, ~fragments)
        self.fragments += self._by_key(numbers, assignment.targets, fragments)
        for needs, mine in ((self.needs_all, skewed & ~fragments), (self.needs_share, skewed & fragments)):
            reached = self._by_key(numbers, assignment.targets, mine) > 0
            needs |= reached.any(axis=1, keepdims=True) if broadcasts else reached
        rows = np.bincount(assignment.targets, minlength=self.nodes)
        self.skewed += np.bincount(assignment.targets[skewed], minlength=self.nodes)
        self._move(source, rows)

    def add_build(self) -> None:
        at_home = np.zeros_like(self.needs_all)
        at_home[np.arange(len(at_home)), self.homes] = True
        height, _ = matrix(self.nodes)
        # A key all of whose probe rows are fragments needs no whole copy anywhere, not even at its home.
        whole = self.needs_all | at_home
        if self.path == "direct":
            only_shares = self.needs_share.any(axis=1) & (self.whole.sum(axis=1) == 0)
            whole = self.needs_all | (at_home & ~only_shares[:, None])
        part = (self.needs_share & ~whole) / height
        wanted = whole + part  # copies of each build row, by key and node
        if self.path == "direct":
            for source in range(self.nodes):
                self._move(source, self.build[source] @ wanted)
            return
        for source in range(self.nodes):
            self._move(source, self.build[source] @ at_home)
        total = self.build.sum(axis=0)
        for home in range(self.nodes):
            mine = self.homes == home
            self._move(home, total[mine] @ np.where(at_home[mine], 0, wanted[mine]))

    def results(self) -> NDArray[np.float64]:
        height, _ = matrix(self.nodes)
        found: NDArray[np.float64] = self.build.sum(axis=0).astype(np.float64) @ (self.whole + self.fragments / height)
        return found

    def _by_key(self, numbers: Keys, targets: NDArray[np.int32], mine: NDArray[np.bool_]) -> Counts:
        keys, nodes = self.whole.shape
        at = numbers[mine] * nodes + targets[mine]
        return np.bincount(at, minlength=keys * nodes).reshape(keys, nodes)

    def _move(self, source: int, rows: NDArray[np.float64] | Counts) -> None:
        """Rows from a node to all nodes. Those that stay cost no traffic."""
        self.taken += rows
        self.received += rows
        self.received[source] -= rows[source]
        self.sent[source] += rows.sum() - rows[source]
