"""Becomes the command given after a process id; the kernel kills it when that process dies.

This is a separate program, not a `preexec_fn`: Python code between fork and exec can deadlock in a process with threads
(Spark's gateway, librdkafka), and Python 3.12 warns of it. It imports nothing of balajoin, so it starts in 20 ms.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        died_before_the_call = os.getppid() != parent
        if died_before_the_call:
            sys.exit(f"process {parent} has ended, {command[0]} not started")
    os.execv(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
