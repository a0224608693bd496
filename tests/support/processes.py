"""Reads the children, command lines and listening addresses of running processes. Linux only."""

import os
import socket
import struct
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path

_LISTENING = "0A"


def tree(pid: int) -> list[int]:
    """The process and its descendants."""
    listing = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True)
    return [pid, *(below for child in listing.stdout.split() for below in tree(int(child)))]


def command_line(pid: int) -> str:
    with suppress(OSError):  # the process may have ended
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
    return ""


def listening(pids: Iterable[int]) -> set[str]:
    """The addresses at which these processes listen for TCP."""
    sockets = {link for pid in pids for link in _open_files(pid) if link.startswith("socket:")}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            if state == _LISTENING and f"socket:[{rest[5]}]" in sockets:
                found.add(_address(local.partition(":")[0]))
    return found


def is_loopback(address: str) -> bool:
    parsed = ip_address(address)
    return (getattr(parsed, "ipv4_mapped", None) or parsed).is_loopback


def _open_files(pid: int) -> list[str]:
    links = []
    with suppress(OSError):
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                links.append(os.readlink(file))
    return links


def _address(written: str) -> str:
    """Decodes an address, which the kernel writes as 32-bit words in the machine's byte order."""
    words = [int(written[at : at + 8], 16) for at in range(0, len(written), 8)]
    family = socket.AF_INET if len(words) == 1 else socket.AF_INET6
    return socket.inet_ntop(family, struct.pack(f"={len(words)}I", *words))
