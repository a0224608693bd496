import io
import re
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from balajoin.spark.memory import giving_back

STATUS = Path("/proc/self/status")
MB = 1 << 20


def resident_mb() -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", STATUS.read_text())
    assert found
    return int(found[1]) // 1024


def use_300_mb(_: Any, outfile: BinaryIO) -> None:
    """Frees all but the last, so that the C library cannot give the others back by itself."""
    blocks = [bytes(bytearray(100_000)) for _ in range(3 * MB // 1000)]
    outfile.write(b"done")
    kept.append(blocks[-1])


kept: list[bytes] = []


@pytest.mark.skipif(not STATUS.exists(), reason="only Linux tells the memory of a process so")
def test_a_task_leaves_no_memory_behind() -> None:
    before, output = resident_mb(), io.BytesIO()
    use_300_mb(None, io.BytesIO())
    assert resident_mb() > before + 200
    giving_back(use_300_mb)(None, output)
    assert output.getvalue() == b"done"
    assert resident_mb() < before + 100
