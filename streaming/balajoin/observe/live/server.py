"""Serves the live page over HTTP: one HTML file, and the moments that it draws as server-sent events."""

import base64
import hashlib
import json
import re
import threading
import time
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from balajoin.config.address import Address
from balajoin.errors import ConfigError, Problem
from balajoin.observe.http_server import Handler, Server
from balajoin.observe.live.hub import KEPT_BATCHES, Hub

_PAGE = Path(__file__).with_name("page.html").read_bytes()
_HEARTBEAT_S = 10.0
_MOST_READERS = 64


def _hashes(tag: str) -> str:
    """Returns the hashes of the page's inline content: nothing else may run."""
    contents = re.findall(rf"<{tag}>(.*?)</{tag}>".encode(), _PAGE, re.DOTALL)
    return " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(each).digest()).decode()}'" for each in contents)


_HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; script-src {_hashes('script')}; style-src {_hashes('style')}; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class _Server(Server):
    def __init__(self, address: Address, hub: Hub, setting: str) -> None:
        self.hub = hub
        self.readers = threading.BoundedSemaphore(_MOST_READERS)
        super().__init__(address, _Handler, setting)


class _Handler(Handler):
    server: _Server

    def answer(self) -> None:
        path = urlsplit(self.path).path
        if path == "/":
            self._begin("text/html; charset=utf-8", len(_PAGE))
            self.wfile.write(_PAGE)
        elif path == "/events":
            self._stream()
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def end_headers(self) -> None:
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def _begin(self, kind: str, length: int | None = None) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def _stream(self) -> None:
        if not self.server.readers.acquire(blocking=False):
            self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, f"{_MOST_READERS} others are reading")
            return
        try:
            with suppress(OSError):  # the reader is gone
                self._begin("text/event-stream")
                self._write_events()
        finally:
            self.server.readers.release()

    def _write_events(self) -> None:
        last, lines = self.server.hub.past()
        past = f'{{"now_ms":{time.time_ns() // 1_000_000},"limit":{KEPT_BATCHES},"batches":[{",".join(lines)}]}}'
        self._write(f"retry: 2000\nevent: history\ndata: {past}\n\n")
        while (news := self.server.hub.wait(last, _HEARTBEAT_S)) is not None:
            last, lines = news
            self._write("".join(f"event: batch\ndata: {line}\n\n" for line in lines) or ": still here\n\n")
        self._write(f"event: end\ndata: {json.dumps('the service ended')}\n\n")

    def _write(self, text: str) -> None:
        self.wfile.write(text.encode())


class LivePage:
    """Serves `hub` within its `with` block."""

    def __init__(self, address: Address, hub: Hub, setting: str = "page.address") -> None:
        try:
            self._server = _Server(address, hub, setting)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            hint = "choose another port, or 0 for any that is free"
            raise ConfigError([Problem(setting, f"cannot listen on {address}: {reason}", hint)]) from None
        self.address = address.with_port(self._server.server_port)
        self._thread = threading.Thread(target=self._server.serve_forever, name="live-page", daemon=True)

    @property
    def url(self) -> str:
        return self.address.url

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._server.hub.close()
        self._server.shutdown()
        self._server.server_close()
