"""The HTTP server of the live page and the metrics. On a loopback address it answers only to this machine's own names.

Otherwise a web site could make its own name resolve to 127.0.0.1 (DNS rebinding), and its script, in a browser on this
machine, could read everything. On other addresses the server accepts any name, since it cannot know all of its own.
"""

import ipaddress
import logging
import socket
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any
from urllib.parse import urlsplit

from balajoin.config.address import Address

_logger = logging.getLogger(__name__)
_STUCK_AFTER_S = 30.0


class Server(ThreadingHTTPServer):
    """Listens from its construction on. Error messages name the setting of its address, `setting`."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, address: Address, handler: "type[Handler]", setting: str) -> None:
        self.setting = setting
        self._own_name = address.host.lower()
        self.address_family, place = _resolved(address)
        super().__init__(place, handler)

    def server_bind(self) -> None:
        """Leaves out HTTPServer's look-up of the host's full name, which takes seconds without a DNS server."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        _logger.debug("a request of %s failed", client_address, exc_info=True)

    def answers_to(self, host: str) -> bool:
        """Whether a request may use this Host header."""
        if not ipaddress.ip_address(self.server_name).is_loopback:
            return True
        with suppress(ValueError):
            name = urlsplit(f"//{host}").hostname or ""
            return name in ("localhost", self._own_name) or bool(ipaddress.ip_address(name))
        return False


class Handler(BaseHTTPRequestHandler):
    server: Server
    server_version, sys_version = "balajoin", ""
    timeout = _STUCK_AFTER_S

    def do_GET(self) -> None:
        if self.server.answers_to(self.headers.get("Host", "")):
            self.answer()
        else:
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST, f"ask by the address that {self.server.setting} has")

    def answer(self) -> None:
        raise NotImplementedError

    def log_message(self, format: str, *args: Any) -> None:
        _logger.debug("%s %s", self.address_string(), format % args)


def _resolved(address: Address) -> tuple[socket.AddressFamily, Any]:
    """Returns the first IPv4 address of the host, or its first address if it has no IPv4 address."""
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, place = min(found, key=lambda each: each[0] != socket.AF_INET)
    return family, place
