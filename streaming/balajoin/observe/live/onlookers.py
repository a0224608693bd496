"""Starts what shows the joins of this process: the live page, and the file that records them."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from balajoin.config.address import Address
from balajoin.config.models import Config
from balajoin.observe.live.hub import Hub
from balajoin.observe.live.moment import Moment
from balajoin.observe.live.recording import Recording
from balajoin.observe.live.server import LivePage


class Onlookers:
    """Within its `with` block, call each of `listeners` with every moment of every join.

    `settings` are the names of the page's and the record's setting in error messages.
    """

    listeners: list[Callable[[Moment], None]]
    url: str | None = None
    """The page's address; None without a page."""

    def __init__(
        self, page: Address | None, record: Path | None, settings: tuple[str, str] = ("page.address", "run.record")
    ) -> None:
        self._page = page
        self._record = record
        self._settings = settings
        self._open = ExitStack()

    @classmethod
    def of(cls, config: Config) -> Self:
        return cls(config.page.address, Path(config.run.record) if config.run.record else None)

    def __enter__(self) -> Self:
        page_setting, record_setting = self._settings
        self.listeners = [Recording(self._record, record_setting).add] if self._record else []
        if self._page:
            hub = Hub()
            self.url = self._open.enter_context(LivePage(self._page, hub, page_setting)).url
            self.listeners.append(hub.add)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._open.close()
