import os
import socket
from typing import Any

import pytest

from balajoin.spark.quickack import promptly


def connected(kind: str) -> tuple[socket.socket, socket.socket]:
    if kind == "unix":
        return socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as server:
        return socket.create_connection(server.getsockname()), server.accept()[0]


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_a_worker_reads_and_writes_what_it_would_without(kind: str) -> None:
    spark, worker = connected(kind)
    sent = os.urandom(1 << 17)

    def main(infile: Any, outfile: Any) -> None:
        outfile.write(infile.read(len(sent))[::-1])
        outfile.flush()

    with spark, worker, worker.makefile("rb") as infile, worker.makefile("wb") as outfile:
        spark.sendall(sent)
        promptly(main)(infile, outfile)
        assert spark.recv(len(sent), socket.MSG_WAITALL) == sent[::-1]
        if kind == "tcp":
            assert worker.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="needs Linux")
def test_every_read_asks_for_an_acknowledgement_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, ...]] = []

    class Noting(socket.socket):
        def setsockopt(self, *option: Any) -> None:
            asked.append(option)
            super().setsockopt(*option)

    monkeypatch.setattr(socket, "socket", Noting)
    spark, worker = connected("tcp")

    def main(infile: Any, outfile: Any) -> None:
        for _ in range(3):
            spark.sendall(b"abcd")
            infile.read(4)

    with spark, worker, worker.makefile("rb") as infile, worker.makefile("wb") as outfile:
        promptly(main)(infile, outfile)
    assert asked.count((socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)) == 3
