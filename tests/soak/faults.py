"""The faults. After each one the join can go on; otherwise the fault raises SoakError."""

import os
import re
import shutil
import signal
import time
from collections.abc import Callable

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from confluent_kafka.cimpl import NewTopic

from soak import disks
from soak.service import SoakError
from soak.streams import BUILD, OUTPUT, PARTITIONS, PROBE, rows_of
from soak.world import TIMEOUT_S, Skew, World

_JVM_GONE = "the Java process of Spark is gone"
_CUT_SHORT = r"batch \d+ was cut short when join\.(policy|skew\.\w+) was .* Start once as it was"
_POLICIES = ("bala-join", "hash", "flow-join", "bppr-det")  # the policies that need no list of keys


# --- faults from which the service recovers by itself or after a restart ---


def kill_driver(world: World) -> None:
    world.service.kill()
    world.await_results()


def kill_jvm(world: World) -> None:
    world.service.kill_jvm()
    world.note(ending := world.service.await_ending())
    if _JVM_GONE not in ending.error:
        raise SoakError(f"killing the JVM ended the service with {ending}:\n{world.service.excerpt}")
    world.await_results()


def kill_worker(world: World) -> None:
    world.service.kill_worker()
    world.await_results()


def kill_broker(world: World) -> None:
    world.broker.kill()
    time.sleep(3 * world.random.random())
    world.broker.start()
    world.await_results()


def restart_broker(world: World) -> None:
    world.broker.restart()
    world.await_results()


def slow_broker(world: World) -> None:
    """The broker hangs for seconds, a few times."""
    for _ in range(world.random.randint(1, 3)):
        pid = world.broker.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(1 + 7 * world.random.random())
        finally:
            os.kill(pid, signal.SIGCONT)
        time.sleep(world.random.random())
    world.await_results()


def full_cache(world: World) -> None:
    """The local copy of the state cannot be written. The service still runs, and still starts."""
    with disks.full(world.cache):
        world.await_results()
        if world.random.random() < 0.5:
            world.service.kill()
        world.await_results()
        world.await_results()
    world.await_results()


def lost_cache(world: World) -> None:
    """The local copy of the state is deleted repeatedly while batches run."""
    for _ in range(world.random.randint(10, 30)):
        for folder in world.cache.iterdir():
            shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.3 * world.random.random())
    world.await_results()


def changed_settings(world: World) -> None:
    """After a crash the service starts with another policy, θ and ε.

    If only some nodes have written a batch, it must be finished with the old settings, and the service says so.
    """
    before = world.skew
    world.service.kill()
    policy = world.random.choice(_POLICIES)
    world.skew = Skew(policy, world.random.choice([0.002, 0.01, 0.1]), world.random.choice([0.02, 0.1, 0.5]))
    world.configure()
    world.service.start()
    while world.service.is_running and " batch=" not in world.service.log:
        time.sleep(0.1)
    if not world.service.is_running:
        world.note(ending := world.service.await_ending())
        if not re.search(_CUT_SHORT, ending.error):
            raise SoakError(f"other settings ended the service with {ending}:\n{world.service.excerpt}")
        world.skew = before
        world.configure()
    world.await_results()


# --- faults that stop the service, with an error that says what to repair ---


def full_checkpoint(world: World) -> None:
    with disks.full(world.checkpoint.parent):
        world.await_refusal("a disk is full: make room for the checkpoint|the checkpoint .* cannot be written: .* room")
    world.await_results()


def read_only_checkpoint(world: World) -> None:
    with disks.read_only(world.checkpoint.parent):
        world.await_refusal("the checkpoint .* cannot be written: ")
    world.await_results()


def oversized_result(world: World) -> None:
    """Each row fits into its topic, but the result of both does not fit into a record."""
    assert world.output is not None
    world.load.pause()
    _set_topic(world, OUTPUT, "max.message.bytes", "1000000")
    before = set(world.output.seen)
    key = b"large-%d" % world.account.faults["oversized_result"]
    world.send([(topic, key, 600_000, 0) for topic in (BUILD, PROBE)])
    world.await_refusal(r"too large.*max\.request\.size|too large.*max\.message\.bytes")
    world.configure('java = { "max.request.size" = "4000000" }')
    _set_topic(world, OUTPUT, "max.message.bytes", "4000000")
    world.load.resume()
    world.await_results()
    deadline = time.monotonic() + TIMEOUT_S
    while not any(world.output.values[id_][0] == key for id_ in world.output.seen.keys() - before):
        if time.monotonic() > deadline:
            raise SoakError(f"a large result did not arrive:\n{world.service.excerpt}")
        world.await_results()
    world.configure()
    world.service.stop()


def recreated_topic(world: World) -> None:
    """A topic is created anew while the service runs or is down. It ends before or after the reader's offset."""
    topic = world.random.choice([PROBE, BUILD])
    rows = len(rows_of(world.bootstrap, topic))
    world.settle()
    running, outgrown = world.random.random() < 0.5, world.random.random() < 0.5
    if running:
        world.service.start()
        _await_log(world, "running name=")
    world.admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    _await_topic(world, topic, exists=False)
    world.admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(TIMEOUT_S)
    _await_topic(world, topic, exists=True)
    if outgrown:
        rows = max(rows, len(rows_of(world.bootstrap, topic))) + 1000
        world.send([(topic, b"none", 10, 0)] * rows)
    if not running:
        world.service.start()
    world.await_refusal("a topic does not exist at|created anew.*new run.checkpoint")
    world.begin()
    world.await_results()


def overtaken_reader(world: World) -> None:
    """Records are deleted before they are read, while the service is down or hangs."""
    topic = world.random.choice([PROBE, BUILD])
    world.settle()
    running = world.random.random() < 0.5
    if running:
        world.service.start()
        _await_log(world, "running name=")
        world.service.pause_jvm(True)
    try:
        world.send([(topic, b"none", 10, 0)] * 200)
        world.delete_records(topic)
        world.send([(topic, b"none", 10, 0)] * 200)
    finally:
        if running:
            world.service.pause_jvm(False)
    if not running:
        world.service.start()
    world.await_refusal(r"deleted.*before they were read.*retention\.ms.*new run\.checkpoint")
    world.begin()
    world.await_results()


def _set_topic(world: World, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for changed in world.admin.incremental_alter_configs([resource]).values():
        changed.result(TIMEOUT_S)


def _await_topic(world: World, topic: str, exists: bool) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while (topic in world.admin.list_topics(timeout=TIMEOUT_S).topics) != exists:
        if time.monotonic() > deadline:
            raise SoakError(f"topic {topic} should {'' if exists else 'not '}be there")
        time.sleep(0.1)


def _await_log(world: World, text: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S * 3
    while text not in world.service.log:
        if time.monotonic() > deadline or not world.service.is_running:
            raise SoakError(f"the service did not say {text!r}:\n{world.service.excerpt}")
        time.sleep(0.1)


Fault = Callable[[World], None]
NEED_DISKS: tuple[Fault, ...] = (full_cache, full_checkpoint, read_only_checkpoint)
FAULTS: dict[str, Fault] = {
    fault.__name__: fault
    for fault in (
        kill_driver,
        kill_jvm,
        kill_worker,
        kill_broker,
        restart_broker,
        slow_broker,
        changed_settings,
        lost_cache,
        oversized_result,
        recreated_topic,
        overtaken_reader,
        *NEED_DISKS,
    )
}
