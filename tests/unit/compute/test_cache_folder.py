"""A node's local files belong to one user, and no other user can read, forge or redirect them."""

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from balajoin.compute import batch as batch_module
from balajoin.compute import cache_folder, processor
from balajoin.compute.cache_folder import PrivateFolder, node_folder, place
from balajoin.compute.exchange import Arrival, NodeInputs
from balajoin.compute.node import Node
from balajoin.compute.processor import NodeProcessor
from balajoin.core.messages import Stamp
from balajoin.core.sides import SIDES
from balajoin.core.spec import JoinSpec, SideTopics
from balajoin.spark import worker
from balajoin.spark.labels import node_labels
from balajoin.spark.warm_up import load_kernels
from oracle import Row
from strategies import SECOND, Memory, results_of, table

NOBODY = 65534
OWN = f"balajoin-{os.geteuid()}"
MONTH_AGO = time.time() - 30 * 86_400
SPEC = JoinSpec(1, 10 * SECOND, 10 * SECOND, 0, 60_000, {"probe": 1, "build": 1}, {}, "inner")

second_user = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as a second user")


@contextmanager
def acting_as(user: int) -> Iterator[None]:
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder like /tmp, where every user may write. Pytest's own folders are closed to other users."""
    load_kernels()  # here, because a second user may have no right to read them
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def warnings_of_this_test() -> None:
    cache_folder._warn_once.cache_clear()


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A file of this user in a folder that looks like a node's and is old enough to be cleaned up."""
    folder = tmp_path / "outside" / "node-0"
    folder.mkdir(parents=True, mode=0o700)
    (tmp_path / "outside").chmod(0o700)
    file = folder / "precious"
    file.write_text("precious")
    os.utime(folder, (MONTH_AGO, MONTH_AGO))
    return file


class Joined:
    """One node that is opened again for each batch. A batch has one row of each stream, and all rows match."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        self.durable = Memory()
        self.state: bytes | None = None
        self.batches = self.pairs = self.rebuilt_blocks = 0

    def batch(self) -> None:
        rows = table([Row(b"k", 0, b"secret value", 0, self.batches)])
        node = Node(SPEC, self.state, self.durable, self.cache, 0)
        self.rebuilt_blocks += node.store.rebuilt_blocks
        found = node.process(self.batches, NodeInputs([Arrival(side, 0, 0, 1, [rows]) for side in SIDES]))
        self.pairs += results_of(found).total()
        self.state = found.outcome.state
        self.batches += 1
        assert self.pairs == self.batches**2

    @property
    def node_folder(self) -> Path:
        (folder,) = (self.cache / OWN).glob("*/node-0")
        return folder


def everything(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


# --- owner of the folder ----------------------------------------------------------------------------------------------


def test_nobody_else_has_any_right(tmp_path):
    joined = Joined(tmp_path / "a" / "place")
    before = os.umask(0)
    try:
        for _ in range(3):
            joined.batch()
    finally:
        os.umask(before)
    found = [joined.cache / OWN, *everything(joined.cache / OWN)]
    assert {path.suffix for path in found} >= {".rows", ".index", ".catalog"}
    for path in found:
        assert stat.S_IMODE(path.lstat().st_mode) == (0o700 if path.is_dir() else 0o600), path


@second_user
def test_two_users_of_one_machine_do_not_disturb_each_other(shared):
    ours, theirs = Joined(shared), Joined(shared)
    for _ in range(4):
        ours.batch()
        with acting_as(NOBODY):
            theirs.batch()
            with pytest.raises(PermissionError):
                list((shared / OWN).iterdir())
    assert (ours.rebuilt_blocks, theirs.rebuilt_blocks) == (0, 0)
    assert {path.stat().st_uid for path in everything(shared / f"balajoin-{NOBODY}")} == {NOBODY}


@second_user
@pytest.mark.parametrize("mode", [0o700, 0o777])
def test_a_folder_that_somebody_else_made_first_is_not_used(shared, caplog, mode):
    with acting_as(NOBODY):
        (shared / OWN).mkdir()
        (shared / OWN).chmod(mode)
        (shared / OWN / "theirs").write_text("theirs")
    joined = Joined(shared)
    for _ in range(3):
        joined.batch()
    assert everything(shared) == [shared / OWN, shared / OWN / "theirs"]
    (warning,) = [record.message for record in caplog.records if "no local files" in record.message]
    assert f"belongs to user {NOBODY}" in warning
    assert f"Remove {shared / OWN}, or set run.cache_dir to another folder" in warning


@second_user
def test_a_file_that_somebody_else_made_is_not_opened(tmp_path):
    folder = PrivateFolder(tmp_path / "folder")
    (tmp_path / "folder" / "theirs").write_text("theirs")
    os.chown(tmp_path / "folder" / "theirs", NOBODY, NOBODY)
    with pytest.raises(PermissionError, match="not an ordinary file of user 0"):
        folder.open("theirs")


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o740, 0o701])
def test_a_folder_in_which_others_have_rights_is_not_used(tmp_path, caplog, mode):
    joined = Joined(tmp_path)
    joined.batch()
    (tmp_path / OWN).chmod(mode)
    before = everything(tmp_path)
    joined.batch()
    joined.batch()
    assert everything(tmp_path) == before
    (warning,) = [record.message for record in caplog.records if "no local files" in record.message]
    assert f"other users have rights in {tmp_path / OWN} (mode {mode:o})" in warning
    (tmp_path / OWN).chmod(0o700)
    for _ in range(2):
        joined.batch()
    assert joined.rebuilt_blocks == 2 + 4 + 6  # none in the last batch


def test_a_place_that_cannot_be_made_is_done_without(tmp_path, caplog):
    (tmp_path / "file").touch()
    joined = Joined(tmp_path / "file" / "place")
    for _ in range(3):
        joined.batch()
    assert len([record for record in caplog.records if "run.cache_dir" in record.message]) == 1


def test_the_temporary_folder_is_that_of_the_executor(tmp_path, monkeypatch):
    topics = SideTopics("late", "control", "replicas", {}, {})
    made_on_the_driver = NodeProcessor(1, SPEC, topics, None)
    made_on_the_driver._state = None
    places: list[Path] = []
    monkeypatch.setattr(batch_module, "process", lambda *given: iter([places.append(given[4])]))
    monkeypatch.setattr(worker, "current_stamp", lambda plan: Stamp("join", 0, plan))
    monkeypatch.setattr(processor, "require_place", lambda *_: None)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "of the executor"))
    list(made_on_the_driver.handleInputRows((node_labels(1)[0],), iter([]), None))
    assert places == [tmp_path / "of the executor"]
    assert place("/var/cache/balajoin") == Path("/var/cache/balajoin")


# --- links ------------------------------------------------------------------------------------------------------------


def test_a_link_instead_of_the_folder_is_not_followed(tmp_path, precious, caplog):
    joined = Joined(tmp_path / "place")
    joined.cache.mkdir()
    (joined.cache / OWN).symlink_to(precious.parent.parent)
    before = everything(precious.parent.parent)
    for _ in range(3):
        joined.batch()
    assert everything(precious.parent.parent) == before
    assert "is a link, or no folder" in caplog.text


@pytest.mark.parametrize("level", ["lineage", "node"])
def test_a_link_instead_of_a_folder_within_is_not_followed(tmp_path, precious, caplog, level):
    joined = Joined(tmp_path / "place")
    joined.batch()
    replaced = joined.node_folder if level == "node" else joined.node_folder.parent
    shutil.rmtree(replaced)
    replaced.symlink_to(precious.parent if level == "node" else precious.parent.parent)
    for _ in range(3):
        joined.batch()
    assert everything(precious.parent) == [precious]
    assert "is a link, or no folder" in caplog.text


def test_links_among_the_files_are_removed_and_what_they_point_to_stays(tmp_path, precious):
    joined = Joined(tmp_path / "place")
    joined.batch()
    (joined.node_folder / "link.rows").symlink_to(precious)
    (joined.node_folder / "folder.rows").symlink_to(precious.parent)
    joined.batch()
    assert not [path for path in joined.node_folder.iterdir() if path.is_symlink()]
    assert precious.read_text() == "precious"
    assert joined.rebuilt_blocks == 0


@pytest.mark.parametrize("suffix", [".rows", ".index", ".catalog"])
def test_a_link_to_an_equal_file_is_not_believed(tmp_path, suffix):
    joined = Joined(tmp_path / "place")
    joined.batch()
    for path in joined.node_folder.glob(f"*{suffix}"):
        moved = path.rename(tmp_path / path.name)
        path.symlink_to(moved)
    joined.batch()
    assert joined.rebuilt_blocks == 2
    assert len(list(tmp_path.glob(f"*{suffix}"))) > 0
    joined.batch()
    assert joined.rebuilt_blocks == 2


def test_a_pipe_instead_of_the_catalog_is_not_waited_for(tmp_path):
    joined = Joined(tmp_path)
    joined.batch()
    (catalog,) = joined.node_folder.glob("*.catalog")
    catalog.unlink()
    os.mkfifo(catalog)
    joined.batch()
    assert joined.rebuilt_blocks == 2


@pytest.mark.parametrize("level", ["lineage", "node"])
def test_cleaning_up_does_not_follow_links(tmp_path, precious, level):
    own = tmp_path / "place" / OWN
    own.mkdir(parents=True)
    own.chmod(0o700)
    lineage = own / ("a" * 32)
    if level == "lineage":
        lineage.symlink_to(precious.parent.parent)
    else:
        lineage.mkdir(mode=0o700)
        (lineage / "node-0").symlink_to(precious.parent)
        os.utime(lineage / "node-0", (MONTH_AGO, MONTH_AGO), follow_symlinks=False)
    abandoned = own / ("b" * 32) / "node-1"
    abandoned.mkdir(parents=True)
    for folder in (abandoned, abandoned.parent):
        folder.chmod(0o700)
    (abandoned / "link").symlink_to(precious.parent)
    os.utime(abandoned, (MONTH_AGO, MONTH_AGO))
    Joined(tmp_path / "place").batch()
    assert precious.read_text() == "precious"
    assert not abandoned.parent.exists()


def test_what_is_in_use_is_not_cleaned_up(tmp_path):
    joined = Joined(tmp_path)
    joined.batch()
    Joined(tmp_path).batch()
    joined.batch()
    assert joined.rebuilt_blocks == 0


def test_a_folder_exchanged_while_it_is_open_is_not_used(tmp_path, precious):
    folder = node_folder(tmp_path / "place", "a" * 32, 0)
    assert folder is not None
    folder.create("mine").close()
    folder.path.rename(tmp_path / "moved away")
    folder.path.symlink_to(precious.parent)
    for name in (*folder.names(), "precious"):
        folder.remove(name)
    assert precious.exists()
    assert list((tmp_path / "moved away").iterdir()) == []
