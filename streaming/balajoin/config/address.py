"""The address of a server, written as `host:port` in a setting."""

import ipaddress
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Self

_WRITTEN = re.compile(r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9.-]+)):(?P<port>[0-9]{1,5})")


class AddressError(ValueError):
    """The text is not an address. The message is for the user."""


@dataclass(frozen=True)
class Address:
    host: str
    port: int
    """0 stands for any free port."""

    @classmethod
    def parse(cls, written: str) -> Self:
        match = _WRITTEN.fullmatch(written.strip())
        if match is None or int(match["port"]) > 65535:
            raise AddressError("must be a host and a port")
        if match["ipv6"] is not None:
            try:
                ipaddress.IPv6Address(match["ipv6"])
            except ValueError:
                raise AddressError("has no IPv6 address between its brackets") from None
        return cls(match["ipv6"] or match["host"], int(match["port"]))

    @property
    def is_ipv6(self) -> bool:
        return ":" in self.host

    @property
    def is_loopback(self) -> bool:
        with suppress(ValueError):
            return ipaddress.ip_address(self.host).is_loopback
        return self.host == "localhost"

    @property
    def url(self) -> str:
        """The URL for a client on this machine. A server that listens on all addresses is reached by the local one."""
        with suppress(ValueError):
            if ipaddress.ip_address(self.host).is_unspecified:
                return replace(self, host="::1" if self.is_ipv6 else "127.0.0.1").url
        return f"http://{self}/"

    def with_port(self, port: int) -> Self:
        return replace(self, port=port)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if self.is_ipv6 else f"{self.host}:{self.port}"
