"""A worker must not compile or load a kernel in its first batches: the daemon has loaded all that they use."""

import subprocess
import sys

# In a process of its own, because the tests of this process have loaded kernels already.
SCRIPT = """
import gc
from numba.core.dispatcher import Dispatcher
from balajoin import JoinSettings
from balajoin.spark.warm_up import load_kernels
from balajoin.testing import LocalCluster, Row

def loaded():
    found = [each for each in gc.get_objects() if isinstance(each, Dispatcher)]
    return {(each.py_func.__qualname__, str(types)) for each in found for types in each.overloads}

load_kernels()
before = loaded()
for measure in ("rows", "work"):
    cluster = LocalCluster(JoinSettings(before="1 min", after="1 min", nodes=3, skew={"measure": measure}), sources=2)
    for second in range(12):
        keys = ["hot"] * 80 + [f"key-{number}" for number in range(40)]
        rows = [Row(key, second, "value", partition) for key in keys for partition in range(2)]
        cluster.feed(probe=rows, build=rows[::40])
    cluster.drain()
print(*sorted(loaded() - before), sep="\\n")
"""


def test_the_first_batches_find_all_kernels_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr
