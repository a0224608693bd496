"""Chooses loopback ports on which a server can stop and start again."""

import errno
import random
import socket

# Below the range from which the kernel takes source ports (32768 up on Linux, 49152 up on macOS). Inside that range, a
# client that retries while the server is down can get the server's port as its own, connect to itself and block it.
_CANDIDATES = range(20_000, 32_000)


def free_ports(count: int) -> list[int]:
    """Returns ports that are free now. Binding them can still fail if another process is quicker."""
    free: list[int] = []
    for port in random.SystemRandom().sample(_CANDIDATES, len(_CANDIDATES)):
        if _is_free(port):
            free.append(port)
            if len(free) == count:
                return free
    raise OSError(errno.EADDRINUSE, f"no {count} free ports in {_CANDIDATES}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
