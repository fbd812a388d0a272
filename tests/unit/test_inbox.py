"""How an inbox passes on `ADDRESS KIND REST`, and what its receivers need not write themselves."""

import re
from importlib.resources import files
from unittest.mock import Mock

import pytest

from inconcert._redis.wire import inbox as inbox_module
from inconcert._redis.wire.inbox import Inbox, InboxReceiver
from inconcert.errors import NotConnected
from tests.support.lua_files import FILES, INCLUDED, PLUGS, title


class Receiver(InboxReceiver):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_message(self, rest: str) -> None:
        self.heard.append(rest)


async def test_receiver_is_given_the_rest_of_its_messages() -> None:
    """Without the address and the kind; a stranger's message may have neither."""
    inbox, receiver = Inbox(Mock(), "inbox:1"), Receiver()
    inbox.register("1.1", receiver)
    for message in ("1.1 room some key", "1.1 ended", "1.2 room other", "1.1", ""):
        inbox.dispatch(message)
    assert receiver.heard == ["some key", "", ""]


async def test_message_that_nobody_waits_for_goes_by_its_kind() -> None:
    """A place in a line that nobody waits in any more is left; other kinds are ignored."""
    inbox, left = Inbox(Mock(), "inbox:1"), list[tuple[str, str]]()
    inbox.on_unclaimed("room", lambda address, rest: left.append((address, rest)))
    for message in ("1.1 room some key", "1.1 mailbox 0 key", "1.1 rooms", "1.1"):
        inbox.dispatch(message)
    assert left == [("1.1", "some key")]

    strays = list[tuple[str, str, str]]()
    inbox.on_stray = lambda kind, address, rest: strays.append((kind, address, rest))
    for message in ("1.1 room some key", "1.1 mailbox 0 key", "1.1"):
        inbox.dispatch(message)
    assert (len(left), strays) == (2, [("mailbox", "1.1", "0 key"), ("", "1.1", "")])


def test_receiver_raises_what_it_was_closed_by() -> None:
    """Any number of times, the error that it was given."""
    receiver, error = InboxReceiver(), NotConnected("closed")
    receiver.raise_if_closed()
    receiver.closed(error)
    for _ in range(2):
        with pytest.raises(NotConnected) as caught:
            receiver.raise_if_closed()
        assert caught.value is error


def test_table_of_kinds_names_every_script_that_publishes_to_an_inbox() -> None:
    """And each of them says the kind that the table gives it."""
    rows = re.findall(r"^\| `(\w+)` .*\| `([\w/]+)` \| `([\w/.]+)` \|$", inbox_module.__doc__ or "", re.MULTILINE)
    texts = {
        title(script).removeprefix("include/"): script.read_text("utf-8") for script in (*FILES, *INCLUDED, *PLUGS)
    }
    publish = re.compile(r"publish\(inbox")
    assert {script for _, script, _ in rows} == {name for name, text in texts.items() if publish.search(text)}
    for kind, script, module in rows:
        assert re.search(rf"['s] {kind}\b", texts[script]), script
        assert (files("inconcert") / module).is_file()
