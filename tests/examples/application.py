"""What the pages take for granted: the names of the reader's own program, which no page defines.

Each does as little as it can. The pages are type-checked with these names, and run with them.
"""

# ruff: noqa: ARG002, D103 - their names say what they would do

import asyncio
import logging
import tempfile
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any
from uuid import uuid4

from redis import CredentialProvider
from redis.asyncio import Redis
from sqlalchemy import NullPool, create_engine
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker

from inconcert import Coordinator

concert = Coordinator.from_env()  # each page has one of its own
log = logging.getLogger("shop")
_FILE = f"{tempfile.mkdtemp()}/shop.db"
engine = create_async_engine(f"sqlite+aiosqlite:///{_FILE}", poolclass=NullPool)
sessions = async_sessionmaker(engine)
sync_sessions = sessionmaker(create_engine(f"sqlite:///{_FILE}", poolclass=NullPool))


class Currency(Enum):
    EUR = "EUR"


@dataclass
class Page:
    words: int


@dataclass
class Article:
    id: str
    text: str


class Timer:
    def labels(self, name: str) -> "Timer":
        return self

    def time(self) -> AbstractContextManager[None]:
        return nullcontext()


class Reply:
    status = 200
    headers: Mapping[str, str] = {}


class Usage:
    total_tokens = 800


class Completion:
    usage = Usage()


class LanguageModel:
    async def complete(self, prompt: str) -> Completion:
        return Completion()


class Database:
    async def execute(self, query: str, values: Mapping[str, object]) -> int:
        return 1


class Provider:
    async def charge(self, order: str) -> None: ...


class Tracer:
    def start_as_current_span(self, name: str, attributes: Mapping[str, object]) -> AbstractContextManager[None]:
        return nullcontext()


class WebSocket:
    async def send_json(self, data: object) -> None: ...


SELL = "UPDATE items SET state = 'sold', token = :token WHERE id = :id AND token < :token"
all_sites = ["site:1", "site:2", "site:3"]
batch = [Article("doc:3", "Fair locks"), Article("doc:4", "Unfair locks")]
client_a, client_b, client_c = Redis(), Redis(), Redis()
coins = 17
database = Database()
day = "2026-11-21"
duration = Timer()
model = LanguageModel()
giver, taker = 1, 2
item = uuid4()
item_id = "sword"
job_id = "b6ffae6126fe.11"
letter = order = prompt = text = upload = "..."
provider = Provider()
running: dict[str, str] = {}
shop_id = 7
sold = [(17, "sword", 9.5), (18, "shield", 7.0)]
steps = ["load", "train"]
team = ["bob", "cy"]
tokens = CredentialProvider()
tracer = Tracer()
typed = '"an open quotation mark'
urls = ["https://example.com/1", "https://example.com/2"]
user = "ann"
user_id = 7
websocket = WebSocket()


async def book(holder: str = "") -> None: ...
async def build(text: str) -> str:
    return text


async def check_links(text: str) -> None: ...
async def crawl() -> None: ...
async def crawl_only(sites: Mapping[str, int]) -> None: ...
async def deliver(message: object) -> None: ...
async def do(step: str) -> None: ...
async def done_already(job_id: str) -> bool:
    return False


async def get(url: str) -> Reply:
    return Reply()


async def handle(*args: Any, **kwargs: Any) -> None: ...
async def import_all() -> None: ...
async def import_row(row: int) -> None: ...
async def is_cancelled(order_id: str) -> bool:
    return False


async def load(item: object = None) -> str:
    return "a text"


async def load_everything() -> None: ...


async def load_settings() -> dict[str, Any]:
    return {}


async def make_report(year: int = 2026) -> str:
    return f"report of {year}"


async def make_thumbnail(image: object) -> None: ...
async def migrate() -> None: ...
async def move(coins: int, *, fencing_tokens: Mapping[str, int]) -> None: ...
async def post() -> None: ...
async def provider_is_up() -> bool:
    return True


async def publish_the_last_epoch() -> None: ...
async def read_feed() -> None: ...
async def refresh(site: str) -> None: ...
async def remove_old_carts() -> None: ...
async def mark_as_shipped(session: AsyncSession, order_id: int) -> None: ...
async def save_order(session: AsyncSession, order_id: int) -> None: ...
async def schedule(*, fencing_token: int) -> None: ...
async def sell(item_id: str) -> None: ...
async def send(letter: str) -> None: ...
async def send_sms(*args: Any) -> None: ...
async def serve() -> None:
    await asyncio.sleep(0)


async def show(batch: object) -> None: ...
def stem(word: str) -> str:
    return word


def start(site: str, *, fencing_token: int) -> str:
    """Begin to crawl a site."""
    return site


async def stop(work: str) -> None: ...
async def store(thing: object, *, fencing_token: int = 0) -> None: ...
async def synchronise_all() -> None: ...
async def transfer(*, fencing_tokens: Mapping[str, int]) -> None: ...
async def undo(step: str) -> None: ...
async def undo_import() -> None: ...
async def work() -> None: ...
async def write_report(*, until: datetime | None = None) -> None: ...


election = concert.election("scheduler")


@concert.task()
async def read(url: str) -> Page:
    return Page(words=len(url))


@concert.task()
async def reindex(shop_id: int) -> None: ...
@concert.task()
async def render(name: str) -> str:
    return f"https://example.com/{name}"


@concert.task(queue="nightly", name="report")
async def report(number: int) -> None: ...
@concert.task()
async def send_code(user: str) -> None: ...
@concert.task(name="ship")
async def ship(order_id: int) -> None: ...
@concert.task(queue="high", name="send_sold_email")
async def send_sold_email(seller_id: int, item_id: str, price: float) -> None: ...
