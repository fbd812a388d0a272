"""The people of the marketplace: buyers that race for items, and sellers that answer them, all over HTTP."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import cycle

import httpx

SELLERS = [f"seller-{number}" for number in range(20)]


class Customers:
    """Offer, buy and talk, and remember what the service promised.

    Attributes:
        sold: How many receipts were given for each item; more than one is a double sale.
        refused: How many purchases came too late.
        said: What was said in the chats of each user, as (chat, text).
        heard: What each user received of it.
    """

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.sold: Counter[str] = Counter()
        self.refused = 0
        self.said: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        self.heard: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        self._http = http

    async def offer(self, items: set[str]) -> None:
        """Put items up for sale."""
        for item, seller in zip(sorted(items), cycle(SELLERS), strict=False):
            response = await self._http.put(f"/items/{item}", json={"seller": seller, "price": 9.5})
            response.raise_for_status()

    async def shop(self, buyer: str, wishes: Iterator[str]) -> None:
        """Buy one item after the other, and talk to the seller of each."""
        for item in wishes:
            response = await self._http.post(f"/items/{item}/purchase", json={"buyer": buyer})
            if response.status_code == 409:  # sold to another
                self.refused += 1
                continue
            receipt = response.raise_for_status().json()
            self.sold[item] += 1
            await self._talk(receipt["chat_id"], buyer, receipt["seller"], item)

    async def _talk(self, chat: str, buyer: str, seller: str, item: str) -> None:
        self._note(chat, f"I have bought your {item}.", buyer, seller)  # the service has sent it for the buyer
        await self._say(chat, "When will it come?", buyer, seller)
        await self.read(seller)
        await self._say(chat, "Tomorrow.", seller, buyer)
        await self.read(buyer)

    async def _say(self, chat: str, text: str, sender: str, other: str) -> None:
        response = await self._http.post(f"/chats/{chat}/messages", json={"sender": sender, "text": text})
        response.raise_for_status()
        self._note(chat, text, sender, other)

    def _note(self, chat: str, text: str, *members: str) -> None:
        for member in members:
            self.said[member].add((chat, text))

    async def read(self, user: str) -> None:
        """Fetch what a user has not read yet."""
        response = await self._http.get(f"/users/{user}/messages")
        for message in response.raise_for_status().json():
            self.heard[user].add((message["chat_id"], message["text"]))
