"""Values of a declared type: checked where they are sent, and again where they are read."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, TypedDict

import msgspec
import pydantic
import pytest

from inconcert import Coordinator, Gap, InvalidPayload, Signal, Signalled, wait_all
from tests.support.lines import in_line_at
from tests.support.raw import let_hear, raw


class Item(msgspec.Struct):
    image: int
    tags: list[str] = []


class NewItem(msgspec.Struct):
    """What a later release puts in: one more field, which has a default."""

    image: int
    tags: list[str] = []
    width: int = 100


class StricterItem(msgspec.Struct):
    """What an earlier release cannot put in: the new field has no default."""

    image: int
    width: int


@dataclass
class Sale:
    price: Decimal
    at: datetime


class Row(TypedDict):
    name: str


class Order(pydantic.BaseModel):
    total: Decimal
    lines: list[tuple[str, int]] = []


class Lookup(pydantic.BaseModel):
    """A model whose own method raises what no decoder would."""

    code: str

    @pydantic.field_validator("code")
    @classmethod
    def known(cls, code: str) -> str:
        return {"a": "a"}[code]


class Nested(msgspec.Struct):
    inner: "Nested | None" = None


class Opaque:
    """JSON has no such thing."""


KINDS: list[tuple[Any, Any, Any]] = [
    (Item, Item(17, ["new"]), {"image": 17}),
    (Sale, Sale(Decimal("9.50"), datetime(2026, 11, 22, tzinfo=UTC)), Item(1)),
    (Row, {"name": "a"}, {"nom": "a"}),
    (Order, Order(total=Decimal("1.10"), lines=[("a", 1)]), {"total": "1.10"}),
    (list[Order], [Order(total=Decimal(1))], Order(total=Decimal(1))),
    (dict[str, Item], {"a": Item(1)}, {"a": 1}),
    (int | str, "a", 1.5),
    (Annotated[int, msgspec.Meta(ge=0), []], 3, -3),  # it has no hash
]


def nested(levels: int) -> Nested:
    """So many in each other."""
    value = Nested()
    for _ in range(levels - 1):
        value = Nested(value)
    return value


# Queues.


@pytest.mark.parametrize(("kind", "value", "other"), KINDS, ids=range(len(KINDS)))
async def test_item_arrives_as_its_type_and_another_is_refused(
    any_concert: Coordinator, kind: Any, value: Any, other: Any
) -> None:
    """The refused one is not sent, nor are those put in with it."""
    queue = any_concert.queue("q", kind)
    for refused in ([other], [value, other]):
        with pytest.raises(InvalidPayload, match="item for queue 'q'"):
            await queue.put_many(refused)
    await queue.put(value)
    assert await queue.peek() == [value]
    async with await queue.get(timeout=0) as item:
        assert (type(item), item) == (type(value), value)


async def test_item_that_does_not_fit_is_dead_lettered_with_the_reason(any_concert: Coordinator) -> None:
    """The one behind it is handed out; nothing is lost: it is seen as JSON, and is replayed once readers know it."""
    untyped = any_concert.queue("q")
    await untyped.put_many([{"picture": 16}, {"image": 17}])
    queue = any_concert.queue("q", Item)
    async with await queue.get(timeout=5) as item:
        assert item == Item(17)
    [dead] = await queue.dead()
    assert (dead.item, dead.attempts) == (None, 1)
    assert f"item {dead.id} cannot be read" in dead.reason
    assert "does not fit Item: Object missing required field `image`" in dead.reason
    assert [each.item for each in await untyped.dead()] == [{"picture": 16}]
    await queue.replay(dead.id)
    async with await any_concert.queue("q", dict[str, int]).get(timeout=5) as mapping:
        assert mapping == {"picture": 16}
    assert not await queue.dead()


async def test_item_that_does_not_fit_is_dead_lettered_also_at_most_once(any_concert: Coordinator) -> None:
    """It is neither handed out nor counted as done."""
    await any_concert.queue("q").put("text")
    queue = any_concert.queue("q", Item, delivery="at_most_once")
    with pytest.raises(TimeoutError):
        await queue.get(timeout=0)
    assert ["does not fit Item" in dead.reason for dead in await queue.dead()] == [True]


async def test_item_whose_model_raises_is_dead_lettered(any_concert: Coordinator) -> None:
    """Whatever it raises: it would raise it each time."""
    await any_concert.queue("q").put_many([{"code": "b"}, {"code": "a"}])
    queue = any_concert.queue("q", Lookup)
    assert (await queue.get(timeout=5)).item == Lookup(code="a")
    assert ["does not fit Lookup" in dead.reason for dead in await queue.dead()] == [True]


async def test_releases_with_and_without_a_new_field_share_a_queue(any_concert: Coordinator) -> None:
    """Old readers leave it out, new ones fill in its default; one without a default an old item does not fit."""
    old, new = any_concert.queue("q", Item), any_concert.queue("q", NewItem)
    await new.put(NewItem(1, width=300))
    await old.put(Item(2))
    assert (await old.get(timeout=5)).item == Item(1)
    assert (await new.get(timeout=5)).item == NewItem(2, width=100)
    await old.put(Item(3))
    stricter = any_concert.queue("q", StricterItem)
    with pytest.raises(TimeoutError):
        await stricter.get(timeout=0)
    assert ["missing required field `width`" in dead.reason for dead in await stricter.dead()] == [True]


async def test_large_and_deep_items_arrive_up_to_the_limits(any_concert: Coordinator) -> None:
    """They are those of JSON values."""
    queue = any_concert.queue("q", Nested)
    await queue.put(nested(99))
    assert (await queue.get(timeout=5)).item == nested(99)
    for levels in (200, 100_000):
        with pytest.raises(InvalidPayload, match=r"nested|recursion"):
            await queue.put(nested(levels))
    texts = any_concert.queue("texts", list[str])
    await texts.put(["x" * (2**20 - 4)])
    assert (await texts.get(timeout=5)).item == ["x" * (2**20 - 4)]
    with pytest.raises(InvalidPayload, match="1048577 bytes"):
        await texts.put(["x" * (2**20 - 3)])


@pytest.mark.parametrize("kind", [Opaque, "Item", 5, set[Item] | frozenset[int]], ids=str)
def test_type_that_json_cannot_represent_is_refused_at_once(any_concert: Coordinator, kind: Any) -> None:
    """Where it is named, before anything is sent."""
    with pytest.raises(TypeError, match="item for queue 'q'"):
        any_concert.queue("q", kind)


# Mailboxes.


@pytest.mark.parametrize(("kind", "value", "other"), KINDS, ids=range(len(KINDS)))
async def test_message_arrives_as_its_type_and_another_is_refused(
    any_concert: Coordinator, kind: Any, value: Any, other: Any
) -> None:
    """The refused one is not sent, nor are those sent with it."""
    mailbox = any_concert.mailbox("jack451", kind)
    with pytest.raises(InvalidPayload, match="message to mailbox 'jack451'"):
        await mailbox.send(other)
    with pytest.raises(InvalidPayload, match="message to mailbox 'jack451'"):
        await mailbox.send_many([value, other])
    await mailbox.send(value)
    assert [(type(each.body), each.body) for each in await mailbox.fetch()] == [(type(value), value)]


@pytest.mark.parametrize("ack", [True, False])
async def test_message_that_does_not_fit_comes_back_to_a_reader_that_knows_it(
    any_concert: Coordinator, caplog: pytest.LogCaptureFixture, ack: bool
) -> None:
    """It holds up no other, even where one is fetched at a time, and no reader waits for it; the log names it."""
    mailbox, later = any_concert.mailbox("jack451", Item), any_concert.mailbox("jack451", dict[str, int])
    await later.send_many([{"picture": 1}, {"picture": 2}, {"image": 3}])
    [message] = await mailbox.fetch(limit=1, ack=ack)
    assert message.body == Item(3)
    assert await mailbox.fetch(timeout=0.01) == []
    await mailbox.ack([message])
    [first, _] = [record.getMessage() for record in caplog.records if record.name == "inconcert.mailboxes"]
    assert "is left for a reader that knows it" in first
    assert "does not fit Item: Object missing required field `image`" in first
    assert await later.fetch() == []
    claims = await raw(any_concert).zrange(mailbox._keys.claims, 0, -1)
    await raw(any_concert).zadd(mailbox._keys.claims, dict.fromkeys(claims, 1))
    back = await later.fetch()
    assert [(each.body, each.attempt) for each in back] == [({"picture": 1}, 2), ({"picture": 2}, 2)]
    assert str(back[0].id) in first
    assert await mailbox.unread() == 0


async def test_waiting_reader_goes_on_waiting_after_a_message_that_does_not_fit(any_concert: Coordinator) -> None:
    """And gets the next that does."""
    mailbox = any_concert.mailbox("jack451", Item)
    waiting = asyncio.create_task(mailbox.fetch(timeout=None))
    for message in ({"picture": 1}, {"image": 2}):
        await in_line_at(any_concert, mailbox._keys.waiters, 1)
        await any_concert.mailbox("jack451").send(message)
    assert [each.body for each in await waiting] == [Item(2)]


async def test_loss_that_a_message_that_does_not_fit_would_tell_of_is_told_later(any_concert: Coordinator) -> None:
    """With the first that is returned, once its claim has lapsed."""
    untyped = any_concert.mailbox("jack451", max_messages=1)
    for number in range(3):
        await untyped.send(number)
    assert await any_concert.mailbox("jack451", Item).fetch() == []
    claims = await raw(any_concert).zrange(untyped._keys.claims, 0, -1)
    await raw(any_concert).zadd(untyped._keys.claims, dict.fromkeys(claims, 1))
    assert [(each.body, each.missed) for each in await untyped.fetch()] == [(2, 2)]


# Signals.


async def woken(concert: Coordinator, signal: Signal[Any], value: Any) -> Any:
    """What a waiter for this signal gets."""
    waiting = asyncio.create_task(signal.wait(timeout=5))
    await in_line_at(concert, signal._keys.waiters, 1)
    await concert.signal(signal.name).notify(value)
    return await waiting


@pytest.mark.parametrize(("kind", "value", "other"), KINDS, ids=range(len(KINDS)))
async def test_payload_arrives_as_its_type_and_another_is_refused(
    any_concert: Coordinator, kind: Any, value: Any, other: Any
) -> None:
    """By a broadcast and by a notification."""
    await let_hear(any_concert, "dep*")
    signal = any_concert.signal("deploy", kind)
    for send in (signal.broadcast, signal.notify):
        with pytest.raises(InvalidPayload, match="payload of signal 'deploy'"):
            await send(other)
    for send in (signal.broadcast, signal.notify):
        waiting = asyncio.create_task(signal.wait(timeout=5))
        await in_line_at(any_concert, signal._keys.waiters, 1)
        await send(value)
        assert await waiting == value
    async with signal.subscribe() as one, any_concert.signals("dep*", kind).subscribe() as every:
        await signal.broadcast(value)
        assert await one.next(timeout=5) == value
        assert await every.next(timeout=5) == Signalled("deploy", value)


async def test_payload_that_is_left_out_must_be_of_the_type(any_concert: Coordinator) -> None:
    """It is None, which reaches nobody unless the type has it; without a type it does."""
    signal, either = any_concert.signal("deploy", Item), any_concert.signal("deploy", Item | None)
    async with any_concert.signal("deploy").subscribe() as untyped:
        for send in (signal.broadcast, signal.notify):
            with pytest.raises(InvalidPayload, match="payload of signal 'deploy'"):
                await send()
        await either.broadcast()
        await any_concert.signal("deploy").broadcast(1)
        assert [await untyped.next(timeout=5) for _ in range(2)] == [None, 1]


async def test_waiter_raises_for_a_payload_that_does_not_fit(any_concert: Coordinator) -> None:
    """It says for which signal, and the next payload arrives."""
    signal = any_concert.signal("deploy", Item)
    with pytest.raises(InvalidPayload, match="payload of signal 'deploy' does not fit Item"):
        await woken(any_concert, signal, {"picture": 1})
    assert await woken(any_concert, signal, {"image": 2}) == Item(2)


async def test_payload_that_does_not_fit_leaves_those_of_other_signals_to_the_next(any_concert: Coordinator) -> None:
    """Who waits for all of them gets none, so what has come for the others is passed on."""
    bad, good = any_concert.signal("bad", Item), any_concert.signal("good")
    both = asyncio.create_task(wait_all(bad, good, timeout=5))
    await in_line_at(any_concert, bad._keys.waiters, 1)
    await in_line_at(any_concert, good._keys.waiters, 1)
    next_in_line = asyncio.create_task(good.wait(timeout=5))
    await in_line_at(any_concert, good._keys.waiters, 2)
    await good.notify("kept")
    await any_concert.signal("bad").notify({"picture": 1})
    with pytest.raises(InvalidPayload, match="payload of signal 'bad'"):
        await both
    assert await next_in_line == "kept"
    assert not await any_concert.signal("bad").notify({"image": 1})


async def test_subscription_has_a_gap_where_a_payload_does_not_fit(
    any_concert: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    """It goes on behind it; the log says what did not fit."""
    await let_hear(any_concert, "dep*")
    signal, untyped = any_concert.signal("deploy", Item), any_concert.signal("deploy")
    async with signal.subscribe() as one, any_concert.signals("dep*", Item).subscribe() as every:
        await untyped.broadcast({"picture": 1})
        await untyped.broadcast({"image": 2})
        assert [await one.next(timeout=5) for _ in range(2)] == [Gap(1), Item(2)]
        assert [await every.next(timeout=5) for _ in range(2)] == [Gap(1), Signalled("deploy", Item(2))]
    assert "is returned as a gap: payload of signal 'deploy' does not fit Item" in caplog.text


# Chats.


@pytest.mark.parametrize(("kind", "value", "other"), KINDS, ids=range(len(KINDS)))
async def test_chat_message_arrives_as_its_type_and_another_is_refused(
    any_concert: Coordinator, kind: Any, value: Any, other: Any
) -> None:
    """The refused one makes no chat, and is in none."""
    chat = any_concert.chat.of(kind)
    with pytest.raises(InvalidPayload, match="message of a chat"):
        await chat.create("ann", ["bob"], other)
    assert await chat.fetch("bob") == []
    chat_id = await chat.create("ann", ["bob"], value)
    with pytest.raises(InvalidPayload, match="message of a chat"):
        await chat.send(chat_id, "ann", other)
    assert (await chat.send(chat_id, "ann", value)).body == value
    [batch] = await chat.fetch("bob", ack=False)
    async for heard in chat.listen("bob", ack=False):
        assert heard == batch
        break
    assert await chat.history(chat_id, "bob") == batch.messages
    assert [(type(each.body), each.body) for each in batch.messages] == [(type(value), value)] * 2
    assert (batch.unfit, batch.missed) == ([], 0)


async def test_chat_message_that_does_not_fit_is_handed_over_as_json(
    any_concert: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    """It is neither missed nor in the way: it is one of a limit, and is read with its batch; the log names it."""
    untyped, chat = any_concert.chat, any_concert.chat.of(Item)
    chat_id = await untyped.create("ann", ["bob", "cy"], {"picture": 1})
    await chat.send(chat_id, "ann", Item(2))
    [batch] = await chat.fetch("bob", limit=1)
    assert (batch.messages, batch.missed, batch.last_id) == ([], 0, 1)
    assert [(each.id, each.sender, each.body) for each in batch.unfit] == [(1, "ann", {"picture": 1})]
    assert f"message 1 of chat '{chat_id}' is not of the type that is read" in caplog.text
    assert "does not fit Item: Object missing required field `image`" in caplog.text
    assert [each.body for each in await chat.history(chat_id, "bob")] == [Item(2)]
    [batch] = await chat.fetch("bob")
    assert ([each.body for each in batch.messages], batch.unfit) == ([Item(2)], [])
    assert await chat.fetch("bob") == []


async def test_listener_hands_over_a_chat_message_that_does_not_fit(any_concert: Coordinator) -> None:
    """Alone in its batch, as it comes; the next follows."""
    untyped, chat = any_concert.chat, any_concert.chat.of(Item)
    chat_id = await untyped.create("ann", ["bob"], {"picture": 1})
    batches = chat.listen("bob")
    first = await anext(batches)
    assert ([each.body for each in first.unfit], first.messages) == ([{"picture": 1}], [])
    await untyped.send(chat_id, "ann", {"image": 2})
    second = await anext(batches)
    assert ([each.body for each in second.messages], second.unfit) == ([Item(2)], [])
    await batches.aclose()


def test_type_of_chats_that_json_cannot_represent_is_refused_at_once(any_concert: Coordinator) -> None:
    """Where it is named."""
    with pytest.raises(TypeError, match="message of a chat"):
        any_concert.chat.of(Opaque)
