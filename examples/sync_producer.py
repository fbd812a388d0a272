"""A synchronous half and an asynchronous one: a thread without an event loop enqueues, and a worker runs.

The thread stands for a Flask or Django process, which has only the URL of the server.

    python -m examples.sync_producer
"""

import asyncio

from inconcert import Coordinator, SyncProducer

concert = Coordinator.embedded(namespace="shop")


@concert.task(name="receipt", queue="mail")
async def receipt(order: int, *, language: str) -> str:
    return f"receipt {order} in {language}"


def handle_order(producer: SyncProducer) -> str:
    job = producer.enqueue("receipt", [17], {"language": "Greek"}, queue="mail", unique="receipt:17")
    again = producer.enqueue("receipt", [17], {"language": "Greek"}, queue="mail", unique="receipt:17")
    print("enqueued:", job.created, "again:", again.created)
    producer.put("thumbnails", {"image": 17})
    producer.send("jack451", "your receipt is on its way")
    return job.id


async def main() -> None:
    async with concert:
        with SyncProducer(concert.url or "", namespace="shop") as producer:
            job_id = await asyncio.to_thread(handle_order, producer)
            waiting = asyncio.create_task(asyncio.to_thread(producer.result, job_id, timeout=10.0))
            await concert.run_worker("mail", burst=True)
            print("result:  ", await waiting)
        async with await concert.queue("thumbnails").get() as item:
            print("item:    ", item)
        [message] = await concert.mailbox("jack451").fetch()
        print("message: ", message.body)


if __name__ == "__main__":
    asyncio.run(main())
