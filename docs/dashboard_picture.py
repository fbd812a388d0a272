"""Takes the pictures of the dashboard that the site shows, light and dark: `python -m docs.dashboard_picture`.

It needs chromium.
"""

import asyncio
import math
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import httpx
import uvicorn

from inconcert import Coordinator
from inconcert.dashboard import Dashboard, read_only

ASSETS = Path(__file__).parent / "assets"
# How chromium is told which colours its user prefers.
PICTURES = {"dashboard.png": "preferredColorScheme=1", "dashboard-dark.png": "preferredColorScheme=0"}
_PORT = 8089
_SIZE = "1100,620"
_SECONDS = 90.0  # of work to be seen in its charts


async def live(concert: Coordinator) -> None:
    """Give two workers something to do, now more and now less."""

    @concert.task(queue="mail", name="send_receipt")
    async def send_receipt(order_id: int) -> str:
        await asyncio.sleep(0.05)
        return f"the receipt of order {order_id} is sent"

    @concert.task(queue="images", name="render")
    async def render(photo: str) -> str:
        await asyncio.sleep(0.4)
        return f"{photo}.webp"

    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(concert.run_worker("mail", "images", concurrency=4))
        await concert.enqueue("forgotten", queue="mail")  # which no worker knows
        for number in range(100_000):
            await render.enqueue(f"photos/{number}.jpg")
            for _ in range(3):
                await send_receipt.options(delay=3600 if number % 20 == 0 else 0).enqueue(number)
            await asyncio.sleep(0.06 + 0.03 * math.sin(number / 40))


async def look(url: str) -> None:
    """Watch it for a while: its charts begin when somebody looks."""
    async with httpx.AsyncClient(timeout=_SECONDS) as http, asyncio.timeout(_SECONDS):
        while True:  # a stream ends after a while, and a browser comes back
            await http.get(f"{url}/live")


async def take(url: str, picture: Path, setting: str) -> None:
    """Have a browser look at it."""
    browser = shutil.which("chromium") or "chrome"
    with tempfile.TemporaryDirectory() as profile:
        program = await asyncio.create_subprocess_exec(
            browser,
            *("--headless", "--no-sandbox", "--hide-scrollbars", f"--user-data-dir={profile}"),
            *(
                f"--blink-settings={setting}",
                f"--window-size={_SIZE}",
                "--timeout=4000",
                f"--screenshot={picture}",
                url,
            ),
        )
        await program.wait()


async def main() -> None:
    """Run all of it, on a private server."""
    async with Coordinator.embedded(namespace="shop") as concert:
        dashboard = Dashboard(concert, allow=read_only)
        server = uvicorn.Server(uvicorn.Config(dashboard, port=_PORT, log_level="warning"))
        living, serving = asyncio.create_task(live(concert)), asyncio.create_task(server.serve())
        await asyncio.sleep(1)
        with suppress(TimeoutError):
            await look(f"http://127.0.0.1:{_PORT}")
        for name, setting in PICTURES.items():
            await take(f"http://127.0.0.1:{_PORT}/", ASSETS / name, setting)
        server.should_exit = True
        await serving
        living.cancel()
        await asyncio.wait([living])


if __name__ == "__main__":
    asyncio.run(main())
