"""What the public functions of routing check before their kernels see an array."""

import numpy as np
from numpy.typing import NDArray


def key_hashes(hashes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same hashes as kernels take them: contiguous and read-only, so that each kernel is compiled once only."""
    if hashes.dtype != np.int64 or hashes.ndim != 1:
        raise TypeError(f"key hashes must be one row of int64, not {hashes.ndim} dimensions of {hashes.dtype}")
    readable = np.ascontiguousarray(hashes).view()
    readable.flags.writeable = False
    return readable
