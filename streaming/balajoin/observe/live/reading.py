"""Reads the event stream of a running service."""

import json
from collections.abc import Iterator
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, build_opener

from pydantic import ValidationError

from balajoin.errors import BalaJoinError
from balajoin.observe.live.moment import Moment

_SILENT_S = 30.0  # three heartbeats
_LARGEST_LINE = 64 << 20


def moments(url: str) -> Iterator[list[Moment]]:
    """Yields first all moments that the service keeps, then each one as its batch ends.

    While no batch ends, it yields an empty list now and then. It raises when the service ends.
    """
    base = url if "://" in url else f"http://{url}"
    try:
        # Without a proxy: the service is mostly on this machine.
        with build_opener(ProxyHandler({})).open(f"{base.rstrip('/')}/events", timeout=_SILENT_S) as stream:
            if stream.headers.get_content_type() != "text/event-stream":
                raise BalaJoinError(f"{base} is not the page of a balajoin service")
            yield from _events(stream, base)
    except HTTPError as error:
        raise BalaJoinError(
            f"{base} answers {error.code} {error.reason}: is it the page of a balajoin service?"
        ) from None
    except URLError as error:
        raise _nobody(base, error.reason) from None
    except (OSError, HTTPException, ValueError) as error:  # ValueError: `url` is no address
        raise _nobody(base, error) from None
    raise BalaJoinError(f"the service at {base} has ended")


def _events(stream: Any, base: str) -> Iterator[list[Moment]]:
    event = ""
    while line := stream.readline(_LARGEST_LINE):
        name, _, content = line.decode("utf-8", "replace").rstrip("\r\n").partition(": ")
        if not name and content:
            yield []
        elif name == "event":
            event = content
        elif name == "data" and event in ("history", "batch"):
            try:
                told = json.loads(content)
                yield [Moment.model_validate(each) for each in (told["batches"] if event == "history" else [told])]
            except (ValueError, KeyError, TypeError, ValidationError):
                raise BalaJoinError(
                    f"what {base} tells cannot be read: is it of another version of balajoin?"
                ) from None


def _nobody(base: str, reason: object) -> BalaJoinError:
    if isinstance(reason, ConnectionRefusedError):
        why = "nobody answers"
    elif isinstance(reason, TimeoutError):
        why = "it has been silent for too long"
    else:
        why = getattr(reason, "strerror", None) or str(reason)
    return BalaJoinError(f"no service at {base} ({why}): is it running, with page.address set?")
