"""A share of the CPU for all processes of a host: a control group, of the kernel's version 1 or 2.

A process enters the group before it enters a namespace: `ip netns exec` mounts a /sys without control groups, and a
quota that is not applied looks like a result. So read the throttled time: it is zero where the quota never mattered.
"""

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_PREFIX = "balajoin-geo"
_PERIOD_US = 50_000
_EMPTY_WITHIN_S = 5


@dataclass(frozen=True)
class CpuTime:
    used_s: float
    throttled_s: float
    """Time during which the group had work and was not allowed to run."""

    def __sub__(self, other: "CpuTime") -> "CpuTime":
        return CpuTime(self.used_s - other.used_s, self.throttled_s - other.throttled_s)


class Quota:
    """The group of one host. `cores` may be a fraction; None is no limit, but the time is counted."""

    def __init__(self, name: str, cores: float | None) -> None:
        _remove_leftovers()
        group = f"{_PREFIX}-{os.getpid()}-{name}"
        self._one_tree = (_ROOT / "cgroup.controllers").exists()
        if self._one_tree:
            with suppress(OSError):  # the controller may be on already
                (_ROOT / "cgroup.subtree_control").write_text("+cpu")
        self._folders = [_ROOT / group] if self._one_tree else [_ROOT / kind / group for kind in ("cpu", "cpuacct")]
        for folder in self._folders:
            folder.mkdir(exist_ok=True)
        if cores is not None:
            self._limit(int(cores * _PERIOD_US))

    @property
    def entering(self) -> str:
        """Shell commands by which a shell enters the group."""
        return "".join(f"echo $$ > {folder}/cgroup.procs && " for folder in self._folders)

    def time(self) -> CpuTime:
        lines = (self._folders[0] / "cpu.stat").read_text().splitlines()
        stat = {name: int(value) for name, value in (line.split() for line in lines)}
        if self._one_tree:
            return CpuTime(stat["usage_usec"] / 1e6, stat.get("throttled_usec", 0) / 1e6)
        used = int((self._folders[1] / "cpuacct.usage").read_text())
        return CpuTime(used / 1e9, stat["throttled_time"] / 1e9)

    def processes(self) -> list[int]:
        return [int(pid) for pid in (self._folders[0] / "cgroup.procs").read_text().split()]

    def remove(self) -> None:
        for folder in self._folders:
            _remove(folder)

    def _limit(self, quota_us: int) -> None:
        if self._one_tree:
            (self._folders[0] / "cpu.max").write_text(f"{quota_us} {_PERIOD_US}")
            return
        (self._folders[0] / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
        (self._folders[0] / "cpu.cfs_quota_us").write_text(str(quota_us))


def _remove(folder: Path) -> None:
    """The kernel removes a group only when its last process has gone."""
    deadline = time.monotonic() + _EMPTY_WITHIN_S
    while folder.exists():
        try:
            folder.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                return
            time.sleep(0.1)


def _remove_leftovers() -> None:
    """Removes the groups of runs that were killed."""
    for folder in (*_ROOT.glob(f"{_PREFIX}-*"), *_ROOT.glob(f"cpu*/{_PREFIX}-*")):
        owner = folder.name.removeprefix(f"{_PREFIX}-").split("-")[0]
        if not Path("/proc", owner).exists():
            with suppress(OSError):
                folder.rmdir()
