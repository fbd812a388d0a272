"""Replaying what was dead-lettered because of another job: it waits for that job again.

Source: docs/explanation/tasks.md
"""

import asyncio
from collections.abc import Sequence

from inconcert._claims.dead_letters import DeadLetter, DeadLetters
from inconcert._claims.keys import split_body
from inconcert._core.session import Session
from inconcert._redis.protocol.scripts import Command
from inconcert._redis.wire.call import Call
from inconcert._rules.durations import milliseconds
from inconcert.errors import InvalidPayload
from inconcert.tasks.records.dependents import pass_on
from inconcert.tasks.records.envelope import verify_envelope
from inconcert.tasks.records.store import CHILDREN, WAIT_AGAIN, JobKeys, JobKeyspace

_MOST = 100  # jobs, and pairs of a parent and its child, at once


async def replay_dependants(
    session: Session, keyspace: JobKeyspace, dead_letters: Sequence[DeadLetters], job_id: str
) -> list[str]:
    """Let what was dead because of a job, which is not now, wait for it again, and what was because of that.

    The jobs behind those that are not dead are found as well: an earlier call may have been stopped there.
    """
    return await _Replay(session, keyspace, dead_letters, job_id).run()


class _Replay:
    """Goes from a job to those behind it, so many at once, each after one of its parents; see `replay_dependants`.

    The partition of a job knows its children, and that of a child whether it is dead.  So the children in the partition
    of their parent come first, with theirs, as far as they are found; then those in others, to go on from there.
    """

    def __init__(
        self, session: Session, keyspace: JobKeyspace, dead_letters: Sequence[DeadLetters], job_id: str
    ) -> None:
        self._session = session
        self._keyspace = keyspace
        self._dead_letters = dead_letters
        self._live = {job_id}  # all that were found, and are not dead any more
        self._done: set[str] = set()  # those of them whose children were found, too
        self._next: dict[JobKeys, list[str]] = {keyspace.of_id(job_id): [job_id]}  # whose children are to be found
        self._after: dict[JobKeys, str] = {}  # the last child that was found of the first of these
        self._replayed: list[str] = []

    async def run(self) -> list[str]:
        """Do it, and return the ids of those that wait again."""
        while self._next:
            keys, parents = self._next.popitem()
            await self._go_on(keys, parents)
        if self._replayed:
            await pass_on(self._session, self._keyspace, {self._keyspace.of_id(child) for child in self._replayed})
        return self._replayed

    async def _go_on(self, keys: JobKeys, parents: list[str]) -> None:
        """Replay a portion of the jobs behind these, of one partition, and note where to go on."""
        some, left = parents[:_MOST], parents[_MOST:]
        command = CHILDREN(keys, after=self._after.pop(keys, ""), limit=_MOST, is_deep=1, ids=some)
        ids = [each.decode() for each in await self._session.run(command)]
        pairs = list(zip(ids[::2], ids[1::2], strict=True))
        await self._replay([pair for pair in pairs if self._keyspace.of_id(pair[1]) is keys])
        for child in await self._replay([pair for pair in pairs if self._keyspace.of_id(pair[1]) is not keys]):
            self._next.setdefault(self._keyspace.of_id(child), []).append(child)
        # As the script went: it may have stopped among the children of the last parent.
        found = [each for each in dict.fromkeys([*some, *ids[1::2]]) if self._keyspace.of_id(each) is keys]
        last, child = pairs[-1] if len(pairs) == _MOST else ("", "")
        complete = found[: found.index(last)] if last else found
        self._done.update(self._live.intersection(complete))
        left = [each for each in [*found[len(complete) :], *left] if each in self._live and each not in self._done]
        if left:
            self._next[keys] = left
            self._after[keys] = child if left[0] == last else ""

    async def _replay(self, pairs: Sequence[tuple[str, str]]) -> list[str]:
        """Let those of these children wait again that are dead because of a live parent; return which are live now."""
        children: dict[str, list[str]] = {}
        for parent, child in pairs:
            children.setdefault(parent, []).append(child)
        dead = [child for child in dict.fromkeys(child for _, child in pairs) if child not in self._live]
        found = await asyncio.gather(
            *(self._dead_letters[self._keyspace.of_id(each).number].find(each) for each in dead)
        )
        letters = dict(zip(dead, found, strict=True))
        reached: list[str] = []
        commands: dict[str, Command] = {}
        parents = [parent for parent in children if parent in self._live]
        for parent in parents:  # it grows as children are reached, each after its parent
            for child in children.get(parent, ()):
                if child in self._live:
                    continue
                if (letter := letters[child]) is not None:
                    if not letter.reason.reason.startswith(f"its parent {parent} "):
                        continue
                    if (command := self._wait_again(letter)) is None:
                        continue
                    commands[child] = command
                self._live.add(child)
                reached.append(child)
                parents.append(child)
        answers = await self._session.gather([Call(command) for command in commands.values()])
        for child, answer in zip(commands, answers, strict=True):
            if answer:
                self._replayed.append(child)
            else:
                self._live.remove(child)  # it is dead because of another parent, and so are those behind it
        return [child for child in reached if child in self._live]

    def _wait_again(self, letter: DeadLetter) -> Command | None:
        """The command that lets this one wait again; None if its envelope cannot be read."""
        keys = self._keyspace.of_id(letter.id)
        try:
            envelope = verify_envelope(self._session.key_ring, letter.id, split_body(letter.body)[1])
        except InvalidPayload:
            return None
        delay = envelope.delay if envelope.expires is None else min(envelope.delay, envelope.expires)
        return WAIT_AGAIN(
            keys,
            keys.queue(letter.queue),
            request=self._session.new_address(),
            id=letter.id,
            queue_name=letter.queue,
            delay_ms=milliseconds(delay),
            name=envelope.unique,
            suffix=keys.suffix,
            even_if=envelope.even_if,
            after=tuple(dict.fromkeys(envelope.after)),
        )
