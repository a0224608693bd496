"""Two tables in shards, one shard of each table at each node, as the paper's data nodes hold them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from balajoin.embedded.workload import zipf_keys

Keys = NDArray[np.int64]

_PROBE_SEED, _BUILD_SEED = 1, 2
_PLACE_SEED = 4


@dataclass(frozen=True)
class Zipf:
    """A setting of the paper's synthetic data. Both tables have the same keys, and the same Zipf factor."""

    nodes: int
    zipf: float = 1.25
    ratio: float = 2 / 3
    """|R|/|S|."""
    rows: int = 30_000
    """|S|, the probe rows."""
    keys: int = 10_000
    clustering: float = 0.0
    """The share of each key's rows that lie together at one node; the others lie anywhere."""
    seed: int = 0
    """Of the keys' hashes, and so of their homes."""


@dataclass(frozen=True)
class Shards:
    """Key numbers of the rows, by node, in the order in which the node reads them."""

    probe: list[Keys]
    build: list[Keys]
    hashes: Keys
    """Of each key number."""

    @property
    def nodes(self) -> int:
        return len(self.probe)

    @property
    def keys(self) -> int:
        return len(self.hashes)

    @property
    def probe_rows(self) -> int:
        return sum(map(len, self.probe))

    @property
    def build_rows(self) -> int:
        return sum(map(len, self.build))


def shards(setting: Zipf) -> Shards:
    probe = zipf_keys(setting.rows, setting.keys, setting.zipf, _PROBE_SEED)
    build = zipf_keys(round(setting.rows * setting.ratio), setting.keys, setting.zipf, _BUILD_SEED)
    random = np.random.default_rng(_PLACE_SEED + setting.seed)
    return Shards(
        placed(probe, setting, random), placed(build, setting, random), key_hashes(setting.keys, setting.seed)
    )


def key_hashes(keys: int, seed: int) -> Keys:
    return np.random.default_rng(seed).integers(-(1 << 63), 1 << 63, keys)


def placed(numbers: Keys, setting: Zipf, random: np.random.Generator) -> list[Keys]:
    """Cuts a table into shards. Every key has a node of its own, where `clustering` of its rows lie."""
    own = random.integers(0, setting.nodes, setting.keys)[numbers]
    anywhere = random.integers(0, setting.nodes, len(numbers))
    node = np.where(random.random(len(numbers)) < setting.clustering, own, anywhere)
    return [numbers[node == at] for at in range(setting.nodes)]
