"""Debian's chromium as a reader meets a page, driven from a thread of its own: a test's event loop serves the page."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TypeVar

from playwright.sync_api import Browser, ConsoleMessage, Dialog, Error, Page, Request, sync_playwright

__all__ = ["Reader", "Visit", "reader"]

T = TypeVar("T")

_PATIENCE = 15_000  # milliseconds; a browser on two busy cores


class Visit:
    """One page in a window of its own, and what nobody wants to see there.

    Attributes:
        url: Where the pages are, with a slash at its end.
        page: The page; to be used in `do` alone.
        faults: Errors in the console, dialogs, and requests to elsewhere.
    """

    def __init__(self, page: Page, url: str, thread: ThreadPoolExecutor) -> None:
        self._thread = thread
        self.url = url
        self.page = page
        self.faults: list[str] = []
        page.set_default_timeout(_PATIENCE)
        page.on("console", self._console)
        page.on("pageerror", self._error)
        page.on("dialog", self._dialog)
        page.on("request", self._request)

    async def do(self, act: Callable[["Visit"], T]) -> T:
        """Do something in the window, in the thread of the browser."""
        return await _run(self._thread, lambda: act(self))

    def go(self, path: str = "") -> None:
        """Open one of the pages, and wait until all that it loads is there."""
        self.page.goto(self.url + path, wait_until="load")

    def _console(self, message: ConsoleMessage) -> None:
        is_refusal = "status of 422" in message.text  # of a form, whose page says why
        if message.type in {"error", "warning"} and not is_refusal:
            self.faults.append(f"console: {message.text}")

    def _error(self, error: Error) -> None:
        self.faults.append(f"script: {error}")

    def _dialog(self, dialog: Dialog) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _request(self, request: Request) -> None:
        if not request.url.startswith(self.url):
            self.faults.append(f"request: {request.url}")


class Reader:
    """A browser, in which each visit begins anew."""

    def __init__(self, browser: Browser, thread: ThreadPoolExecutor) -> None:
        self._browser = browser
        self._thread = thread

    @asynccontextmanager
    async def visit(self, url: str, *, width: int = 1280) -> AsyncGenerator["Visit"]:
        """A new window; a narrow one is dark.

        Raises:
            AssertionError: Something was at fault in the page, although the test went well.
        """
        visit = await _run(self._thread, lambda: self._opened(url, width))
        try:
            yield visit
        finally:
            await _run(self._thread, visit.page.context.close)
        assert visit.faults == []

    def _opened(self, url: str, width: int) -> "Visit":
        context = self._browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme="light" if width > 640 else "dark"
        )
        return Visit(context.new_page(), url, self._thread)


@contextmanager
def reader(executable: str) -> Generator[Reader]:
    """A browser for many tests."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="browser") as thread:
        playwright = thread.submit(sync_playwright().start).result()
        try:
            launch = partial(playwright.chromium.launch, executable_path=executable, args=["--no-sandbox"])
            browser = thread.submit(launch).result()
            try:
                yield Reader(browser, thread)
            finally:
                thread.submit(browser.close).result()
        finally:
            thread.submit(playwright.stop).result()


async def _run(thread: ThreadPoolExecutor, act: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(thread, act)
