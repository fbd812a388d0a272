"""Probes of a worker that runs inside an application: it is ready when it claims jobs, busy, and then it drains.

python -m examples.worker_health
"""

import asyncio
import http.client
import json

from inconcert import Coordinator, HealthServer, WorkerHealth

concert = Coordinator.embedded()
gate = asyncio.Event()


@concert.task
async def resize(photo: str) -> str:
    await gate.wait()
    return f"small {photo}"


def probe(server: HealthServer, path: str) -> str:
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"))
    connection.request("GET", path)
    answer = connection.getresponse()
    state = json.loads(answer.read())["state"]
    connection.close()
    return f"{answer.status} {state}"


async def main() -> None:
    health, stop = WorkerHealth(), asyncio.Event()
    with health.serve("127.0.0.1", 0) as server:  # any free port
        print("before: ", await asyncio.to_thread(probe, server, "/readyz"))
        async with concert:
            worker = asyncio.create_task(concert.run_worker("default", concurrency=1, stop=stop, health=health))
            while not health.ready().is_ok:
                await asyncio.sleep(0.01)
            print("idle:   ", await asyncio.to_thread(probe, server, "/readyz"))
            await resize.enqueue("sunset.jpg")
            while not health.ready().running:
                await asyncio.sleep(0.01)
            print("one job:", await asyncio.to_thread(probe, server, "/readyz"))
            stop.set()
            print("stopped:", await asyncio.to_thread(probe, server, "/readyz"))
            print("alive:  ", await asyncio.to_thread(probe, server, "/livez"))
            gate.set()
            await worker


if __name__ == "__main__":
    asyncio.run(main())
