"""Checks arrays before the public functions of routing pass them to kernels."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def key_hashes(hashes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same hashes as kernels take them: contiguous and read-only, so that each kernel is compiled only once."""
    if hashes.dtype != np.int64 or hashes.ndim != 1:
        raise TypeError(f"key hashes must be one row of int64, not {hashes.ndim} dimensions of {hashes.dtype}")
    readable = np.ascontiguousarray(hashes).view()
    readable.flags.writeable = False
    return readable


def numbers(stored: Any, *shape: int | None) -> NDArray[np.int64]:
    """An array read from state; None in `shape` allows any length."""
    if not isinstance(stored, np.ndarray) or stored.dtype != np.int64 or stored.ndim != len(shape):
        raise TypeError(f"not {len(shape)} dimensions of int64")
    if any(wanted not in (None, found) for wanted, found in zip(shape, stored.shape, strict=True)):
        raise ValueError(f"a shape of {stored.shape}")
    return stored
