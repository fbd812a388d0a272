"""The service: items are offered, bought once, and talked about.

Start it with `uvicorn examples.marketplace.app:app`; INCONCERT_URL names its server.
"""

import time

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from examples.marketplace import outside
from inconcert import Coordinator
from inconcert.integrations.fastapi import install, lifespan

FEEDBACK_DELAY = 3.0  # seconds; a real shop waits for a week

concert = Coordinator.from_env()
app = FastAPI(title="Marketplace", lifespan=lifespan(concert))
install(app, concert)


class Item(BaseModel):
    seller: str
    price: float


class Order(BaseModel):
    buyer: str


class Sale(BaseModel):
    item_id: str
    seller: str
    buyer: str
    price: float
    fencing_token: int


class Receipt(Sale):
    chat_id: str


class Message(BaseModel):
    sender: str
    text: str


class Received(Message):
    chat_id: str


@app.put("/items/{item_id}", status_code=201)
async def offer(item_id: str, item: Item) -> None:
    """Offer an item for sale."""
    await concert.redis.hset("shop:items", item_id, item.model_dump_json())


@app.post("/items/{item_id}/purchase")
async def purchase(item_id: str, order: Order) -> Receipt:
    """Buy an item; 409 if it is sold already."""
    async with concert.lock(f"item:{item_id}") as lease:
        offered = await concert.redis.hget("shop:items", item_id)
        if offered is None:
            raise HTTPException(404, f"there is no item {item_id}")
        if await concert.redis.hexists("shop:sales", item_id):
            raise HTTPException(409, f"{item_id} is sold")

        async with concert.semaphore("payment", limit=5):
            await outside.charge(concert.redis, item_id)

        item = Item.model_validate_json(offered)
        sale = Sale(item_id=item_id, buyer=order.buyer, fencing_token=lease.fencing_token, **item.model_dump())
        # The lock has kept others out; writing only what is not there yet would refuse them even if it had lapsed.
        if not await concert.redis.hsetnx("shop:sales", item_id, sale.model_dump_json()):
            await outside.refund(concert.redis, item_id)
            raise HTTPException(409, f"{item_id} is sold")

    return Receipt(chat_id=await announce(sale), **sale.model_dump())


async def announce(sale: Sale) -> str:
    """Have the e-mails sent, now and later, and bring buyer and seller together."""
    due_at = time.time() + FEEDBACK_DELAY
    await concert.enqueue("send_sold_email", [sale.seller, sale.item_id, sale.price, sale.buyer], queue="high")
    await concert.enqueue("send_invoice", [sale.buyer, sale.item_id, sale.price], queue="medium")
    await concert.enqueue("ask_for_feedback", [sale.buyer, sale.item_id, due_at], queue="low", delay=FEEDBACK_DELAY)
    return await concert.chat.create(sale.buyer, [sale.seller], f"I have bought your {sale.item_id}.")


@app.post("/chats/{chat_id}/messages", status_code=201)
async def write(chat_id: str, message: Message) -> None:
    """Say something in a chat; 403 for strangers."""
    await concert.chat.send(chat_id, message.sender, message.text)


@app.get("/users/{user}/messages")
async def read(user: str) -> list[Received]:
    """What was said since the last time, in all chats of a user."""
    return [
        Received(chat_id=batch.chat_id, sender=message.sender, text=str(message.body))
        for batch in await concert.chat.fetch(user)
        for message in batch.messages
    ]


@app.get("/stats")
async def stats() -> dict[str, int]:
    """How much is on offer, and how much of it is sold; also a sign of life."""
    return {"items": await concert.redis.hlen("shop:items"), "sales": await concert.redis.hlen("shop:sales")}
