"""A chat whose history can be searched: each message is indexed under its id, with the time at which it was sent.

The chat drops messages that all have read; the index still finds them, by words, phrases and prefixes of words, the
most relevant or the newest first.

    python -m examples.index
"""

import asyncio

from inconcert import Coordinator, Index

TALK = [
    ("ann", "Which C++ compiler do we use?"),
    ("bob", "The build says: compiler not found."),
    ("ann", "Found it. The compiler, compiler flags and compiler cache are in the wiki."),
    ("cy", "Lunch at one? 寿司にしよう"),
    ("bob", "The flags for tests are not."),
]


async def show(history: Index, texts: dict[str, str], query: str, *, newest: bool = False) -> None:
    """Print the results of a query, the best first."""
    hits = await history.search(query, weights={"id": 1} if newest else None, limit=3)
    print(f"{query:20}", " | ".join(texts[hit.id] for hit in hits) or "-")


async def main() -> None:
    async with Coordinator.embedded() as concert:
        history = concert.index("history")
        chat_id = await concert.chat.create("ann", ["bob", "cy"], "Good morning")
        texts: dict[str, str] = {}  # as your database has them
        for sender, text in TALK:
            message = await concert.chat.send(chat_id, sender, text)
            document = f"{chat_id}:{message.id}"
            texts[document] = text
            await history.add(document, text, scores={"id": message.id})

        await show(history, texts, "compiler")
        await show(history, texts, "compiler", newest=True)
        await show(history, texts, "compiler -c++ -wiki")
        await show(history, texts, '"flags for tests"')
        await show(history, texts, "寿司")
        print("words like comp:", *await history.suggest("comp"))


if __name__ == "__main__":
    asyncio.run(main())
