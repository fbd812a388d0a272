"""What pages show of terminals: commands, and what they print, but for ids, instants and numbers."""

import re

from tests.support.pages import Block

__all__ = ["JOB", "alike", "commands", "shown"]

JOB = re.compile(r"[0-9a-f]{16}\.\d+(?:\.\d+)?")
"""The id of a job; and of a worker, which is in no partition."""


def alike(text: str) -> str:
    """What is not the same in each run is left out: ids, instants and seconds."""
    text = JOB.sub("ID", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(,\d{3}|Z)", "INSTANT", text)
    text = re.sub(r"(?<=inconcert\.)(\w+)\[\d+\]", r"\1[PID]", text)
    text = re.sub(r"(?<=token )\d+", "TOKEN", text)
    text = re.sub(r"\d+(\.\d+)?(?= s\b)", "SECONDS", text)
    text = re.sub(r"worker [0-9a-f]{16}(?= )", "worker ID", text)
    for fact in ("pid", "inconcert", "server", "namespace", "jobs at once"):
        text = re.sub(rf"; {fact}: [^;\n]+", f"; {fact}: FACT", text)
    text = text.replace("; tasks: tasks.count_orders, ", "; tasks: ")  # which comes later
    text = re.sub(r" +$", "", text, flags=re.MULTILINE)  # of a table
    return re.sub(r"month \d+", "month N", text)


def shown(block: Block) -> list[str]:
    """What a block shows of a program's output: without the commands, and without what is left out."""
    return [line for line in alike(block.text).splitlines() if not line.startswith("$ ") and line.strip() != "..."]


def commands(block: Block) -> list[tuple[str, str]]:
    """Each command of a block, and what it prints."""
    found = re.findall(r"^\$ (.*)\n((?:[^$\n].*\n)*)", block.text, re.MULTILINE)
    return [(command, printed.strip()) for command, printed in found]
