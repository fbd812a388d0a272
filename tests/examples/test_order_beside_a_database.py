"""The second part of docs/tutorial/order.md: each program runs, and shows what the page shows."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.pages import DOCS, blocks
from tests.support.programs import start_program
from tests.support.servers import RealServer
from tests.support.transcripts import alike, commands, shown

ORDER = (DOCS / "tutorial" / "order.md").read_text("utf-8")

# Instead of a few seconds each: until the test lets them go on.
HELD_BACK = 'while __import__("pathlib").Path("held").read_text() == "{}":\n{}await asyncio.sleep(0.01)'
PACE = {
    "await asyncio.sleep(3)  # it walks": HELD_BACK.format("walk", 8 * " "),
    "await asyncio.sleep(3)  # it puts away the ladder": HELD_BACK.format("ladder", 8 * " "),
    "await asyncio.sleep(2)  # it counts": HELD_BACK.format("count", 12 * " "),
}
HOLDS = {"python work.py &": "walk", "python sell.py 2": "ladder", "python count.py 100 &": "count"}  # the first time


class Program:
    """One of the page, by its command."""

    def __init__(self, folder: Path, number: int, command: str) -> None:
        self._output = (folder / f"program{number}.log").open("w+b")
        self._read = 0
        _, name, *arguments = command.removesuffix(" &").split()
        self.fork = start_program(folder, name, *arguments, output=self._output)

    def lines(self) -> list[str]:
        """What it has shown."""
        return alike(Path(self._output.name).read_text("utf-8")).splitlines()

    async def shows(self, lines: list[str]) -> None:
        """Wait for so many more lines, and compare them."""
        await eventually(lambda: len(self.lines()) >= self._read + len(lines), timeout=20.0)
        assert self.lines()[self._read : self._read + len(lines)] == lines
        self._read += len(lines)

    def close(self) -> None:
        """Kill it."""
        self.fork.kill()
        self._output.close()


class Programs:
    """All that have run, and those that run in the background."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._all: list[Program] = []
        self._holds = dict(HOLDS)
        self.background: list[Program] = []

    async def run(self, command: str, expected: str) -> None:
        """Run one, and compare what it prints; or start it."""
        (self._folder / "held").write_text(self._holds.pop(command, ""))
        program = Program(self._folder, len(self._all), command)
        self._all.append(program)
        if command.endswith(" &"):
            self.background.append(program)
        else:
            await eventually(lambda: not program.fork.is_running(), timeout=60.0)
            assert program.lines() == expected.splitlines()

    def kill(self, command: str) -> None:
        """Do to one in the background what a command of the page does."""
        last = self.background[-1].fork
        deeds: dict[str, Callable[[], object]] = {
            "kill -9 $!": last.kill,
            "kill -STOP $!": last.pause,
            "kill -CONT $!": last.resume,
            "kill %1": self.background[-2 % len(self.background)].fork.kill,
        }
        deeds[command]()

    def close(self) -> None:
        """Kill all."""
        for program in self._all:
            program.close()


async def test_order_beside_a_database(
    server: RealServer, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker is killed before and after its effect, the server emptied, and a holder stands still."""
    monkeypatch.setenv("INCONCERT_URL", server.url)
    monkeypatch.setenv("INCONCERT_NAMESPACE", namespace)
    workers = f"{{{namespace}:tasks:0}}:workers"
    _, *second_part = blocks(ORDER[ORDER.index("## Lose the server, too") :])  # the first one installs what it needs
    with closing(Programs(tmp_path)) as programs:
        for block in second_part:
            if block.file:
                text = block.text
                for theirs, ours in PACE.items():
                    text = text.replace(theirs, ours)
                (tmp_path / block.file).write_text(text)
            elif block.language == "text":
                lines = [line.replace("inconcert:lock", f"{namespace}:lock") for line in shown(block)]
                await programs.background[-1].shows(lines)
            for command, expected in commands(block) if block.language == "console" else ():
                if command.startswith("kill "):
                    programs.kill(command)
                    for worker in server.command("ZRANGE", workers, 0, -1):  # nobody waits for 10 s
                        server.command("ZADD", workers, "XX", 0, worker)
                else:
                    await programs.run(command, expected)
