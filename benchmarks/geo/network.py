"""Hosts as network namespaces, joined by a bridge in a namespace of its own. Nothing leaves them.

A host's namespace has a loopback and one link to the bridge. Each end of a link may send at the link's rate only. The
names carry this process's id, so that two runs do not meet, and so that a run finds what a killed one left behind.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

_PREFIX = "balajoin-geo"
_ADDRESSES = "198.18.7."  # of RFC 2544's range for benchmarks, which no public network uses
_SWITCH, _BRIDGE = "switch", "bridge"
_PORT = "port-{}"
_LINK = "eth0"
_KILL_WITHIN_S = 10


@dataclass(frozen=True)
class Bytes:
    """What a host's link has carried, by the kernel's counters."""

    sent: int
    received: int

    def __sub__(self, other: "Bytes") -> "Bytes":
        return Bytes(self.sent - other.sent, self.received - other.received)


def problem() -> str | None:
    """Why no namespace can be made here."""
    if os.geteuid() != 0:
        return "namespaces need root: run it as root"
    for program in ("ip", "tc"):
        if shutil.which(program) is None:
            return f"{program} is not installed: run `make tools` as root (on Debian or Ubuntu)"
    name = f"{_PREFIX}-{os.getpid()}-try"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode:
        return "this machine lets root make no network namespaces"
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return None


class Network:
    def __init__(self) -> None:
        self._hosts: list[str] = []

    def __enter__(self) -> Self:
        remove_leftovers()
        _ip("netns", "add", self._space(_SWITCH))
        _ip("-n", self._space(_SWITCH), "link", "add", _BRIDGE, "type", "bridge")
        _ip("-n", self._space(_SWITCH), "link", "set", _BRIDGE, "up")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in (*self._hosts, _SWITCH):
            _remove(self._space(name))

    def add(self, name: str, mbit: float | None) -> str:
        """Adds a host, and returns its address. Without a rate its link is as fast as the machine."""
        self._hosts.append(name)
        space, switch, port = self._space(name), self._space(_SWITCH), _PORT.format(name)
        address = f"{_ADDRESSES}{len(self._hosts)}"
        _ip("netns", "add", space)
        _ip("-n", space, "link", "set", "lo", "up")
        _ip("link", "add", _LINK, "netns", space, "type", "veth", "peer", "name", port, "netns", switch)
        _ip("-n", space, "addr", "add", f"{address}/24", "dev", _LINK)
        _ip("-n", space, "link", "set", _LINK, "up")
        _ip("-n", switch, "link", "set", port, "master", _BRIDGE)
        _ip("-n", switch, "link", "set", port, "up")
        if mbit:
            for where, device in ((space, _LINK), (switch, port)):
                rate = ("rate", f"{mbit}mbit", "burst", "256kb", "latency", "400ms")
                _run("tc", "-n", where, "qdisc", "add", "dev", device, "root", "tbf", *rate)
        return address

    def inside(self, name: str) -> list[str]:
        """The words before a command that runs on the host."""
        return [_program("ip"), "netns", "exec", self._space(name)]

    def counted(self, name: str) -> Bytes:
        link = json.loads(_ip("-n", self._space(name), "-s", "-j", "link", "show", _LINK))[0]["stats64"]
        return Bytes(link["tx"]["bytes"], link["rx"]["bytes"])

    def cut(self, name: str) -> None:
        """Unplugs the host's link: packets are lost, and no connection is closed."""
        _ip("-n", self._space(_SWITCH), "link", "set", _PORT.format(name), "down")

    def mend(self, name: str) -> None:
        _ip("-n", self._space(_SWITCH), "link", "set", _PORT.format(name), "up")

    def processes(self, name: str) -> list[int]:
        return _processes(self._space(name))

    def _space(self, name: str) -> str:
        return f"{_PREFIX}-{os.getpid()}-{name}"


def remove_leftovers() -> None:
    """Removes the namespaces of runs that were killed."""
    for line in _ip("netns", "list").splitlines():
        name = line.split()[0]
        if (
            name.startswith(f"{_PREFIX}-")
            and not Path("/proc", name.removeprefix(f"{_PREFIX}-").split("-")[0]).exists()
        ):
            _remove(name)


def _remove(space: str) -> None:
    deadline = time.monotonic() + _KILL_WITHIN_S
    while (running := _processes(space)) and time.monotonic() < deadline:
        for pid in running:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
    subprocess.run(["ip", "netns", "del", space], capture_output=True)


def _processes(space: str) -> list[int]:
    return [int(pid) for pid in subprocess.run(["ip", "netns", "pids", space], capture_output=True).stdout.split()]


def _ip(*words: str) -> str:
    return _run("ip", *words)


def _run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def _program(name: str) -> str:
    found = shutil.which(name)
    assert found, name
    return found
