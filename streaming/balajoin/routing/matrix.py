import numpy as np
from numba import njit

from balajoin.hashing import mix


def matrix(nodes):
    rows = int(nodes**0.5)
    while nodes % rows:
        rows -= 1
    return rows, nodes // rows


@njit(cache=True)
def _k(p, o, rows):
    out = np.empty(len(p), np.int32)
    for i in range(len(p)):
        out[i] = mix(np.uint64(o[i]), p[i]) % np.uint64(rows)
    return out


def fragment_of(partitions, offsets, rows):
    return _k(partitions, offsets, rows)
