"""Kernels are compiled once for each source of balajoin, by one process at a time."""

from pathlib import Path

import pytest

from balajoin.core import kernels


def test_a_cache_without_kernels_asks_to_be_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_folder", lambda: str(tmp_path))
    assert not kernels.have_been_compiled()
    (tmp_path / "blocks._order_kernel-1.py311.nbi").touch()
    assert kernels.have_been_compiled()


def test_one_process_compiles_while_others_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_folder", lambda: str(tmp_path))
    with kernels.only_compiler(), (tmp_path / "lock").open("w") as other, pytest.raises(BlockingIOError):
        kernels.fcntl.flock(other, kernels.fcntl.LOCK_EX | kernels.fcntl.LOCK_NB)
    with (tmp_path / "lock").open("w") as other:
        kernels.fcntl.flock(other, kernels.fcntl.LOCK_EX | kernels.fcntl.LOCK_NB)


def test_without_a_folder_nothing_is_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_folder", lambda: "")
    assert not kernels.have_been_compiled()
    with kernels.only_compiler():
        pass
