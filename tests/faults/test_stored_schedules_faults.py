"""Schedules that operators change, while workers die, stand still and are cut off: one job for each instant."""

import asyncio
from typing import Any

import pytest

from inconcert import Coordinator, Overlap, Unavailable
from inconcert.tasks.schedules import schedule_follower
from inconcert.tasks.sending.draft import Draft, Pattern
from inconcert.tasks.sending.options import Options
from tests.support.cancelling import MOMENTS, Moment, cancel_at
from tests.support.eventually import eventually
from tests.support.ledger import read_ledger
from tests.support.processes import spawn
from tests.support.proxy import Proxy
from tests.support.raw import raw
from tests.support.schedules import followers, following, job_ids, keys_of, look_at_all, set_since, tenth_of
from tests.support.scripts import command_of
from tests.support.servers import RealServer

HERE = "tests.faults.test_stored_schedules_faults"
CALL: Draft[Any] = Pattern[Any]("t", Options(queue="q")).draft((), {})
HOUR = 3_600_000  # ms


async def ready(concert: Coordinator) -> list[str]:
    """The ids of the jobs in the queue, in its order."""
    return (await read_ledger(raw(concert), concert._ref.keys.namespace)).ready.get("q", [])


async def until_ready(concert: Coordinator, count: int) -> list[str]:
    """Wait until there are so many jobs."""

    async def are_there() -> bool:
        return len(await ready(concert)) >= count

    await eventually(are_there)
    return await ready(concert)


def are_all(ids: list[str]) -> bool:
    """Whether these are jobs of one instant after the other, each once and in order."""
    tenths = [tenth_of(id_) for id_ in ids]
    return tenths == list(range(tenths[0], tenths[0] + len(tenths)))


async def follow(url: str, namespace: str) -> None:
    """In a child: follow all schedules, and leave their jobs where they are."""
    schedule_follower._HOLD_MS = 300  # pyright: ignore[reportPrivateUsage]
    async with Coordinator(url, namespace=namespace) as concert, following(concert):
        await raw(concert).rpush(f"{{{namespace}}}:begun", "1")
        await raw(concert).pexpire(f"{{{namespace}}}:begun", 60_000)
        await asyncio.sleep(60)


async def test_no_instant_is_lost_or_doubled_whoever_is_killed_or_stands_still(
    server: RealServer, concert: Coordinator, namespace: str
) -> None:
    """Of several schedules; they are changed meanwhile, by which no instant may be lost either."""

    async def put() -> None:
        for number in range(3):
            await concert.schedules.put(f"s{number}", CALL, every=0.1, missed="all")

    async def all_have_begun() -> bool:
        return bool(await raw(concert).llen(f"{{{namespace}}}:begun") == 3)

    await put()
    async with (
        spawn(f"{HERE}:follow", server.url, namespace) as one,
        spawn(f"{HERE}:follow", server.url, namespace) as two,
        spawn(f"{HERE}:follow", server.url, namespace),
    ):
        await eventually(all_have_begun)
        await until_ready(concert, 30)
        one.kill()
        await put()
        await until_ready(concert, 60)
        two.pause()
        await until_ready(concert, 90)
        two.resume()
        await put()
        await until_ready(concert, 120)
        two.kill()
        found = await until_ready(concert, 150)
    for number in range(3):
        assert are_all([id_ for id_ in found if id_.startswith(f"schedule:s{number}@")])


async def test_instant_of_a_worker_that_died_between_its_two_steps_comes_later(
    concert: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had taken the schedule; another gets it when the hold is over."""
    monkeypatch.setattr(schedule_follower, "_HOLD_MS", 50)
    await concert.schedules.put("s", CALL, every=3600)
    await set_since(concert, "s", HOUR)
    keys = keys_of(concert, "s")
    await concert._ref.session.run(command_of("schedules/due", keys, hold_ms=50, ttl_ms=60_000, ids=[]))
    assert await ready(concert) == []
    async with following(concert):
        [_] = await until_ready(concert, 1)


async def test_replies_lost_again_and_again_double_none(
    concert: Coordinator, proxy: Proxy, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each was executed, and is sent again."""
    monkeypatch.setattr(schedule_follower, "_HOLD_MS", 200)
    await concert.schedules.put("s", CALL, every=0.1, missed="all")
    async with Coordinator(proxy.url, namespace=namespace) as bad, following(bad):
        for round_ in range(4):
            await until_ready(concert, 2 * round_ + 2)
            proxy.cut_after_replies(0, lose_next=True)
        found = await until_ready(concert, 15)
    assert are_all(found)


async def test_change_that_was_not_heard_of_is_found_when_the_connection_is_back(
    concert: Coordinator, proxy: Proxy, namespace: str
) -> None:
    """The worker would look by itself in a minute."""
    async with Coordinator(proxy.url, namespace=namespace) as bad, following(bad):
        await eventually(lambda: raw(concert).exists(keys_of(concert, "s").looked))
        proxy.refuse()
        await concert.schedules.put("s", CALL, every=0.1)
        await proxy.heal()
        await until_ready(concert, 1)


@pytest.mark.parametrize("moment", MOMENTS)
async def test_cancelled_at_any_await_a_follower_leaves_no_half_of_a_job(
    concert: Coordinator, moment: Moment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is enqueued is whole, and the next one goes on where it ended."""
    monkeypatch.setattr(schedule_follower, "_HOLD_MS", 1)
    await concert.schedules.put("s", CALL, every=0.1, missed="all")
    for number in range(1, 9):
        [follower] = followers(concert)
        assert await cancel_at(number, moment, follower.follow())
    ledger = await read_ledger(raw(concert), concert._ref.keys.namespace)
    ledger.check(put=len(ledger.bodies), done=0)
    assert are_all(ledger.ready["q"])


@pytest.mark.parametrize("moment", MOMENTS)
async def test_cancelled_put_has_changed_all_or_nothing(concert: Coordinator, moment: Moment) -> None:
    """At each of its awaits."""
    number = 1
    while await cancel_at(number, moment, concert.schedules.put(f"s{number}", CALL, every=3600)):
        number += 1
    await concert.ping()
    for status in await concert.schedules.list():
        assert status.problem is None
        assert status.next_at is not None


async def test_full_server_changes_nothing_and_the_instant_comes_when_there_is_room(own_server: RealServer) -> None:
    """A script that is refused leaves nothing half done."""
    async with Coordinator(own_server.url) as concert:
        client: Any = raw(concert)
        await concert.schedules.put("s", CALL, every=3600)
        await set_since(concert, "s", HOUR)
        await client.config_set("maxmemory", "1")
        with pytest.raises(Unavailable, match="OOM"):
            await concert.schedules.put("t", CALL, every=3600)
        with pytest.raises(Unavailable, match="OOM"):
            await look_at_all(concert)
        await client.config_set("maxmemory", "0")
        assert [status.id for status in await concert.schedules.list()] == ["s"]
        await client.zadd(keys_of(concert, "s").looks, {"s": 0})
        await look_at_all(concert)
        assert len(await job_ids(concert)) == 1


async def test_foreign_key_keeps_an_instant_from_being_lost(concert: Coordinator) -> None:
    """The job is not added, and comes when the key is deleted."""
    await concert.schedules.put("s", CALL, every=3600)
    await set_since(concert, "s", HOUR)
    keys = keys_of(concert, "s")
    for key in (keys.queue("q").queue, keys.queue("q").bell):
        await raw(concert).set(key, "foreign", px=60_000)
        with pytest.raises(Exception, match="another type"):
            await look_at_all(concert)
        await raw(concert).delete(key)
        assert await job_ids(concert) == []
        await raw(concert).zadd(keys.looks, {"s": 0})
    await look_at_all(concert)
    assert len(await job_ids(concert)) == 1


async def test_schedule_signed_by_nobody_of_ours_is_not_followed(server: RealServer, namespace: str) -> None:
    """Nor one that was signed under another id."""
    keys = {"one": "0123456789abcdef"}
    async with Coordinator(server.url, namespace=namespace) as stranger:
        await stranger.schedules.put("forged", CALL, every=3600)
        await set_since(stranger, "forged", HOUR)
    async with Coordinator(server.url, namespace=namespace, signing_keys=keys) as concert:
        await concert.schedules.put("ours", CALL, every=3600)
        place, client = keys_of(concert, "ours"), raw(concert)
        await client.hset(place.definitions, "moved", await client.hget(place.definitions, "ours"))
        await client.hset(place.schedules, "moved", await client.hget(place.schedules, "ours"))
        for id_ in ("moved", "ours"):
            await set_since(concert, id_, HOUR)
        await look_at_all(concert)
        [job_id] = await job_ids(concert)
        assert job_id.startswith("schedule:ours@")
        problems = {status.id: status.problem or "" for status in await concert.schedules.list()}
        assert "is not signed" in problems["forged"]
        assert "not signed with key 'one' for its id" in problems["moved"]
        async with concert.consume("q") as jobs, await anext(jobs) as job:
            assert job.name == "t"


# Scripts, each run twice: one whose reply was lost is sent again.


@pytest.mark.twice(
    "schedules/put", "schedules/pause", "schedules/delete", "schedules/find", "schedules/list", "schedules/count"
)
async def test_second_run_of_a_change_answers_the_same(concert: Coordinator) -> None:
    """And changes nothing, even if the opposite was requested in between."""
    session, keys = concert._ref.session, keys_of(concert, "s")

    async def run(name: str, request: str = "", **named: Any) -> Any:
        more = {"request": request} if request else {}
        if name in {"put", "pause"}:
            more["changes"] = keys.schedule_changes
        if name == "put":
            more["result"] = keys.results(["schedule:s@"])[0]
        return await session.run(command_of(f"schedules/{name}", keys, **more, **named))

    put = {"id": "s", "rule": "r", "since_ms": "5", "definition": "{}"}
    assert [await run("put", "1", **put) for _ in range(2)] == [1, 1]
    assert [await run("put", "2", **put) for _ in range(2)] == [0, 0]
    assert await run("pause", "3", id="s", is_paused=1) == 1
    assert await run("pause", "4", id="s", is_paused=0) == 1
    assert await run("pause", "3", id="s", is_paused=1) == 1
    assert await run("pause", "5", id="none", is_paused=1) == -1
    state = await raw(concert).hget(keys.schedules, "s")
    assert [(await run("find", id="s"))[:5] for _ in range(2)] == [[b"s", state, b"{}", 0, 0]] * 2
    pages = [await run("list", cursor=0) for _ in range(2)]
    assert [page[1][0][0::3] for page in pages] == [[b"s", 0]] * 2
    assert [await run("count") for _ in range(2)] == [[1, 0, -1]] * 2
    assert await run("delete", "6", id="s") == 1
    assert await run("put", "7", **put) == 1
    assert await run("delete", "6", id="s") == 1
    assert await raw(concert).hlen(keys.schedules) == 1


@pytest.mark.twice("schedules/due", "schedules/advance")
async def test_second_run_of_a_step_changes_nothing(concert: Coordinator) -> None:
    """What was taken is not taken again; what was enqueued is not enqueued again."""
    await concert.schedules.put("s", CALL, every=3600)
    await set_since(concert, "s", HOUR)
    session, keys = concert._ref.session, keys_of(concert, "s")
    due = command_of("schedules/due", keys, hold_ms=5000, ttl_ms=60_000, ids=[])
    _, _, held_ms, [[id_, state, _]], _ = await session.run(due)
    assert (id_, state.split()[0]) == (b"s", str(HOUR).encode())
    assert (await session.run(due))[3] == []
    advance = command_of(
        "schedules/advance",
        keys,
        keys.queue("q"),
        is_in_code=0,
        results=keys.results(["id"]),
        name="q",
        schedule="s",
        held_ms=held_ms,
        since_ms=HOUR,
        until_ms=2 * HOUR,
        next_ms="",
        instants=(2 * HOUR, "id", "{}"),
    )
    assert await session.run(advance) == 1
    await raw(concert).delete(keys.bodies)
    assert await session.run(advance) == -1
    assert await raw(concert).llen(keys.queue("q").queue) == 1


@pytest.mark.twice("schedules/advance_alone")
@pytest.mark.parametrize("waits", [0, 1])
async def test_second_run_of_a_step_keeps_and_skips_nothing_more(concert: Coordinator, waits: int) -> None:
    """Also when the job for which that of the instant waits has ended in between."""
    await concert.schedules.put("s", CALL, every=3600)
    await set_since(concert, "s", HOUR)
    former = await concert.enqueue("t", queue="q")
    session, keys, client = concert._ref.session, keys_of(concert, "s"), raw(concert)
    due = command_of("schedules/due", keys, hold_ms=5000, ttl_ms=60_000, ids=[])
    _, _, held_ms, _, _ = await session.run(due)
    step = command_of(
        "schedules/advance_alone",
        keys,
        keys.queue("q"),
        is_in_code=0,
        result=keys.result("id"),
        name="q",
        schedule="s",
        held_ms=held_ms,
        since_ms=HOUR,
        until_ms=2 * HOUR,
        next_ms="",
        former=former.id,
        before="",
        waits=waits,
        instant_ms=2 * HOUR,
        id="id",
        envelope="{}",
    )
    assert await session.run(step) == waits
    state = await client.hget(keys.schedules, "s")
    await client.hdel(keys.bodies, former.id)
    assert await session.run(step) == -1
    assert await client.hget(keys.schedules, "s") == state
    assert await client.llen(keys.queue("q").queue) == 1
    assert await client.hexists(keys.bodies, "id") == bool(waits)


@pytest.mark.parametrize("overlap", ["skip", "wait"])
async def test_jobs_do_not_overlap_whoever_is_killed_or_stands_still(
    server: RealServer, concert: Coordinator, namespace: str, overlap: Overlap
) -> None:
    """Of workers that follow the schedule, and of those that run its jobs: each instant has one job, or none."""
    await concert.schedules.put("s", CALL, every=0.1, overlap=overlap)
    ended: list[str] = []

    async def end_one() -> None:
        async with concert.consume("q") as jobs, asyncio.timeout(30):
            [job] = await jobs.claim(1)
            others = await jobs.try_claim(5)
            assert not others
            ended.append(job.id)
            await job.ack()

    async with (
        spawn(f"{HERE}:follow", server.url, namespace) as one,
        spawn(f"{HERE}:follow", server.url, namespace) as two,
        spawn(f"{HERE}:follow", server.url, namespace),
    ):
        await end_one()
        one.pause()
        await end_one()
        two.kill()
        await end_one()
        one.resume()
        for _ in range(5):
            await end_one()
    assert len(set(ended)) == 8
    assert ended == sorted(ended, key=tenth_of)


@pytest.mark.twice("schedules/declare")
async def test_second_declaration_leaves_a_schedule_where_it_is(concert: Coordinator) -> None:
    """It takes it from its holder, and a paused one stays paused."""
    session, keys, client = concert._ref.session, keys_of(concert, "s"), raw(concert)
    declare = command_of("schedules/declare", keys, ttl_ms=60_000, entries=("s", "r", "{}", "p", "r", "{}"))
    await client.sadd(keys.paused_schedules, "p")
    assert await session.run(declare) == 1
    await client.hset(keys.schedules, "s", "5 4 r")
    await client.zadd(keys.looks_in_code, {"s": 7.5})
    assert await session.run(declare) == 1
    assert await client.hget(keys.schedules, "s") == b"5 4 r"
    assert await client.zrange(keys.looks_in_code, 0, -1, withscores=True) == [(b"s", 0.0)]
    assert set(await client.zrange(keys.declared, 0, -1)) == {b"s", b"p"}
