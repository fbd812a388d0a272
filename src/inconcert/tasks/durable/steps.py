"""The durable steps of a job: results that are kept as they come, so that later attempts go on where one ended.

`Steps` is the engine of one attempt: it decides what runs.  `journal.py` has what is kept; `durable.py` the verbs that
users call.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar, cast
from weakref import ref

import anyio

from inconcert._core.deadlines import deadline_here
from inconcert._core.scope import leases_here
from inconcert._rules.conversion import Converter
from inconcert._rules.names import check_name
from inconcert.errors import InvalidPayload, WrongState
from inconcert.tasks.durable.body_exits import Asleep, Undoing
from inconcert.tasks.durable.body_parts import BodyPart, parts_here
from inconcert.tasks.durable.cursor import Cursor
from inconcert.tasks.durable.journal import Journal
from inconcert.tasks.durable.kept_step import (
    IN_PART,
    UNDOES,
    KeptStep,
    Position,
    StepCall,
    StepStore,
)
from inconcert.tasks.durable.open_undo import OpenUndo
from inconcert.tasks.durable.pauses import Pause, Pauses

_LONGEST_WAIT = 10.0  # seconds for which a task of a body that is undone waits for its others

_EACH = StepCall("durable.each", "", Converter("the position of durable.each()", Position))
_SLEEP = StepCall("durable.sleep", "", Converter("the end of durable.sleep()", float))
_WAIT = StepCall("durable.wait_for", "", Converter("the end of durable.wait_for()", float))

T = TypeVar("T")


class Steps:
    """The steps of one attempt of a job.

    Args:
        store: Where they are kept.
        is_undoing: Whether nothing is begun that was not kept: the body runs to find what it has to undo.
    """

    __slots__ = (
        "_all_was_asked",
        "_cursors",
        "_left",
        "_pauses",
        "_receiving",
        "_reserved",
        "_store",
        "_taken",
        "failure",
        "is_awake",
        "is_undoing",
        "journal",
        "open_undos",
    )

    def __init__(self, store: StepStore, *, is_undoing: bool = False) -> None:
        self.is_awake = False  # whether sleeps end, and waits time out, at once, as tests want it
        self.is_undoing = is_undoing  # whether the job is being undone
        # while it is, the error with which one of its steps has failed; None for none
        self.failure: Exception | None = None
        # the blocks that may still have something to undo, in the order in which they were entered
        self.open_undos: list[OpenUndo] = []
        self._left = asyncio.Event()  # set when one of them is left; then there is another event
        self._store = store
        self.journal = Journal(store, is_undoing=is_undoing)
        self._receiving = 0  # how many messages a body that is undone asks for now
        self._all_was_asked = asyncio.Event()
        self._cursors: dict[str, Cursor] = {}  # of the loops of this attempt, by their names
        self._pauses = Pauses()
        self._taken: set[str] = set()  # names that this attempt has used
        self._reserved: set[str] = set()  # names of steps that would undo something

    @property
    def job_id(self) -> str:
        """The id of the job."""
        return self._store.id

    async def take(self, name: str, call: StepCall, run: Callable[[], Awaitable[T]], *, may_change: bool = False) -> T:
        """The kept result of a step; or run it, and keep its result.

        The returned value is the one that later attempts get, too: the result as it is read from its JSON.

        Args:
            name: Which step.
            call: The function and its arguments.
            run: Calls it.
            may_change: Whether a result of another function, or for other arguments, counts; it does in a job that is
                undone.

        Raises:
            StepChanged: What was kept is of another function or for other arguments, or does not have the type.
            StepRefused: The name was used before in this attempt, or the job has too many steps or too large ones.
            InvalidPayload: The result is not JSON, or too large.
            UnreadablePayload: What was kept has no valid signature.
            NotClaimed: The job has ended, or its worker was presumed dead; nothing was kept.
            OutcomeUnknown: The worker was lost before the server answered; a later attempt may run the step again.
        """
        with self._noting_failure():
            # What is undone is what was done, whatever the code would do today.
            taken = await self._take(name, call, run, may_change=may_change or self.is_undoing)
            self._stop_if_all_was_asked()
            return taken

    async def note_undo(self) -> None:
        """Note that the job has something to undo."""
        with self._noting_failure():
            await self._stop_if_doomed()
            if not self.is_undoing:
                await self._store.note_undo()

    async def check_claim(self) -> None:
        """Raise NotClaimed if the job, which has something to undo, is no longer claimed here."""
        await self._store.note_undo()

    async def was_kept(self, name: str) -> bool:
        """True if a step of this name was kept; it then counts as asked for."""
        with self._noting_failure():
            return await self._find(name) is not None

    def reserve(self, name: str) -> None:
        """Let only a step that undoes something have this name; raises `ValueError` if another step has it."""
        if name in self._taken or name in self._reserved:
            raise ValueError(f"a step of job {self._store.id} is called {name!r} already; give one another name")
        self._reserved.add(name)

    @contextmanager
    def undoing_here(self) -> Generator[None]:
        """While it is open, steps run here that were not kept: they undo something. Elsewhere in the body none does."""
        token = _undoing_here.set(self)
        try:
            yield
        finally:
            _undoing_here.reset(token)

    @property
    def is_undoing_here(self) -> bool:
        """True if what runs here undoes something."""
        return _undoing_here.get() is self

    @property
    def leaving(self) -> Asleep | None:
        """The way in which the body leaves, to come back later; None before it does."""
        return self._pauses.asleep

    async def stop_if_leaving(self) -> None:
        """Raise Undoing, or again Asleep or the error of a doomed attempt: the body is to begin what was not kept.

        Other tasks of a body that is undone may still be on their way to what was kept: they are waited for.
        """
        await self._stop_if_doomed()
        if (asleep := self.leaving) is not None:
            raise asleep
        if not self.are_only_read:
            return
        if self.misses_some:
            with anyio.move_on_after(_LONGEST_WAIT):
                await self._all_was_asked.wait()
        await self.wait_for_others()
        raise Undoing

    async def wait_for_others(self) -> None:
        """Return when no other task of the body has anything to undo: where this one ends, its group may cancel these.

        They are stopped one after another. One that waits for this task in turn cancels it, as groups of tasks do; if
        it has done so already, and the body has caught that, nothing would end the wait.
        """
        task = asyncio.current_task()
        while not self.misses_some and not (task and task.cancelling()):
            latest = next((block for block in reversed(self.open_undos) if not block.is_over), None)
            if latest is None or latest.task is task:
                break
            latest.stop()
            await self._left.wait()

    def end_body(self) -> bool:
        """The body has ended: blocks that it has not left stop it no more; returns whether nothing else cancels it."""
        task = asyncio.current_task()
        were_stopped = [block.leave() for block in self.open_undos if block.task is task]
        return any(were_stopped) and task is not None and not task.cancelling()

    def leave_undo(self, block: OpenUndo) -> None:
        """Note that a block was left."""
        block.is_over = True
        self._left.set()
        self._left = asyncio.Event()

    @property
    def misses_some(self) -> bool:
        """True if the body has not asked yet, or has no answer, for all that was kept before anything was undone."""
        return bool(self._receiving) or any(not self.journal.undoes(name) for name in self.unasked)

    @property
    def are_only_read(self) -> bool:
        """True if no step runs here that was not kept."""
        return self.is_undoing and not self.is_undoing_here

    @property
    def unasked(self) -> list[str]:
        """The names of the steps that were kept, and that this attempt was to ask for, and has not."""
        journal = self.journal
        return [name for name in journal.kept or () if name not in self._taken and not journal.is_passed_over(name)]

    async def begin_loop(self, name: str, loop: object) -> Cursor:
        """The position of the loop of this name; also of one that was left before its end, which goes on from there.

        Raises:
            StepChanged: What was kept is not of a loop.
            StepRefused: See `take`. It also raises every other error of `take`.
        """
        cursor = self._cursors.get(name)
        if cursor is None or cursor.is_in_use or (cursor.position.is_at_end and not self.are_only_read):
            found, call = await self._find(name), self._marked(_EACH)
            if found is None:
                await self.stop_if_leaving()
            position = Position() if found is None else self.journal.result(found, call, may_change=False)
            self._stop_if_all_was_asked()
            cursor = Cursor(name, call, cast("Position", position), self.journal.number_of(name))
            self._cursors[name] = cursor
        cursor.loop = ref(loop)
        cursor.begun += 1
        return cursor

    def note_left_loops(self) -> None:
        """Note which loops the body has left before their end, now that it goes on: so it does when it is undone.

        Skipped while an exception is being handled: that exception may have ended the loop.
        """
        for cursor in () if self.is_undoing or sys.exception() else self._cursors.values():
            if cursor.is_left and self.journal.has_room(cursor):
                cursor.leave()
                self.journal.save_cursor_nowait(cursor)

    def has_passed(self, cursor: Cursor) -> bool:
        """True if the loop gives out no more: it was at its end, or the body that is undone had gone on behind it."""
        position = cursor.position
        if self.are_only_read:
            return cursor.begun <= position.left + position.is_at_end
        return position.is_at_end

    def doom(self, error: Exception) -> Exception:
        """An error with which the job is dead-lettered, whatever the body makes of it."""
        self._store.doom(error)
        return error

    def save_cursors_nowait(self) -> None:
        """Keep how far all loops are: this attempt ends."""
        for cursor in self._cursors.values():
            if not cursor.is_saved and self.journal.has_room(cursor):
                self.journal.save_cursor_nowait(cursor)

    async def sleep(self, name: str, seconds: float, *, in_memory_below: float) -> None:
        """Return this long after it was first called in the job: wait here for a short rest, and leave for a long one.

        Raises:
            Asleep: The job is to come back later.
            WrongState: It is, and its body holds a lease, or has a deadline around this.
        """
        with self._pauses.begin(name) as pause:
            with self._noting_failure():
                rest = await self._rest(name, _SLEEP, seconds)
            leaves = rest > 0 and rest >= in_memory_below
            if leaves:
                await self._check_may_leave(pause)
            if self.is_awake:
                return
            self._pauses.ends_in(pause, rest)
            if rest > 0:
                await self.stop_if_leaving()
            if leaves:
                raise await self._asleep(pause, rest)
            self._stop_if_all_was_asked()
            with self._asked_again_if_stopped(name):
                await anyio.sleep(max(0.0, rest))

    async def wait_for(self, name: str, as_type: type[T], timeout: float) -> T:
        """The message of this name, which was sent within this time after the first call in the job.

        Raises:
            Asleep: It is not there: the job is to come back when it is.
            WrongState: The same, and its body holds a lease, or has a deadline around this.
            TimeoutError: It was not sent in time.
            UnreadablePayload: It does not have the type, or no valid signature.
            TypeError: JSON cannot represent this type.
        """
        job_id = self._store.id
        converter = Converter(f"message {name!r} of job {job_id}", as_type)
        try:
            with self._pauses.begin(name, is_for_message=True) as pause:
                with self._noting_failure():
                    rest = await self._rest(name, _WAIT, timeout)
                is_over = not self.are_only_read and (rest <= 0 or self.is_awake)
                with self._noting_failure():
                    text = await self._receive(name, is_over=is_over)
                if text is None:
                    await self._check_may_leave(pause)
                    self._pauses.ends_in(pause, rest)
                    await self.stop_if_leaving()
                    raise await self._asleep(pause, rest)
            if not text:
                self._stop_if_all_was_asked()
                raise TimeoutError(f"message {name!r} was not sent to job {job_id} within {timeout:g} s")
            value: T = converter.read(text)
        except TimeoutError as error:
            self._store.note_final(error)
            raise
        except InvalidPayload as error:
            self._store.doom(error)
            raise
        self._stop_if_all_was_asked()
        return value

    def ask_again(self, name: str) -> None:
        """A step was kept, and its caller stopped before it had the result: a body that catches this may ask again."""
        if not self.is_undoing:  # which depends on all that was asked for
            self._taken.discard(name)

    # Private.

    async def _take(self, name: str, call: StepCall, run: Callable[[], Awaitable[T]], *, may_change: bool = False) -> T:
        found, call = await self._find(name), self._marked(call)
        if found is not None:
            result = self.journal.result(found, call, may_change=may_change)
            self._store.step_ended("kept")
            return cast("T", result)
        await self.stop_if_leaving()
        self.journal.check_room(name)
        self._store.step_started(name, call.function)
        part = BodyPart(self)
        try:
            part.begin()
            try:
                value = await run()
            finally:
                part.end()
            result = await self.journal.add(name, call, value)
        except BaseException as error:
            self._store.step_left(name, error)
            self._taken.discard(name)  # a body that catches this may try again
            if isinstance(error, Exception):
                self._store.step_ended("failed")
            raise
        self._store.step_left(name, None)
        self._store.step_ended("ran")
        return cast("T", result)

    async def _receive(self, name: str, *, is_over: bool) -> bytes | None:
        is_only_read = self.are_only_read
        self._receiving += is_only_read
        try:
            with self._asked_again_if_stopped(name):
                return await self._store.receive(name, is_over=is_over)
        except Exception:
            self._taken.discard(name)  # also of a job that is undone: what comes behind it is not known
            raise
        finally:
            self._receiving -= is_only_read

    @contextmanager
    def _asked_again_if_stopped(self, name: str) -> Generator[None]:
        try:
            yield
        except BaseException:
            self.ask_again(name)
            raise

    async def _asleep(self, pause: Pause, rest: float) -> Asleep:
        asleep = Asleep(rest, frozenset([pause.name] if pause.is_for_message else []))
        if not self.is_undoing:  # where the other tasks of the body wait for what undoes
            with self._asked_again_if_stopped(pause.name):
                asleep = await self._pauses.leave()
        self._store.step_suspends(pause.name, asleep.delay)
        return asleep

    async def _check_may_leave(self, pause: Pause) -> None:
        """Raise WrongState if the body has something that it would lose here: a lease, or a deadline around this."""
        held = sorted(f"{lease.kind} {lease.name!r}" for lease in leases_here())
        why = f"holds {', '.join(held)}; release it before" if held else await self._deadline_here(pause)
        if why:
            self.ask_again(pause.name)
            verb, job_id = "wait_for" if pause.is_for_message else "sleep", self._store.id
            raise WrongState(
                f"job {job_id} cannot leave its worker for durable.{verb}({pause.name!r}) while its body {why}",
                operation=verb,
                kind="job",
                name=job_id,
            )

    async def _deadline_here(self, pause: Pause) -> str:
        """The deadline that the body would lose; empty for none."""
        body = self._store.body_task
        deadline = None if self.are_only_read or body is None else await deadline_here(body)
        if deadline is None:
            return ""
        rest = deadline.at - asyncio.get_running_loop().time()
        advice = "give wait_for() a timeout= instead" if pause.is_for_message else "sleep outside of it"
        return f"is inside of {deadline.of}, whose deadline in {rest:.3g} s would be lost; {advice}"

    def _stop_if_all_was_asked(self) -> None:
        """Of a job that is undone: what comes behind the last step that was kept is not to run again."""
        if not self.are_only_read or self.misses_some:
            return
        self._all_was_asked.set()
        if not self.open_undos:
            raise Undoing
        asyncio.get_running_loop().call_soon(self.open_undos[-1].stop)  # behind it something is registered at once

    def _marked(self, call: StepCall) -> StepCall:
        """The call as it is kept, with a mark if it undoes something or is in a part of the body."""
        undoes, in_part = UNDOES if self.is_undoing_here else "", IN_PART if parts_here(self) else ""
        return call._replace(arguments=in_part + undoes + call.arguments) if undoes or in_part else call

    @contextmanager
    def _noting_failure(self) -> Generator[None]:
        try:
            yield
        except Exception as error:
            if self.is_undoing:
                self.failure = error
            raise

    async def _stop_if_doomed(self) -> None:
        """Raise again the error of a doomed attempt, for a body that has caught it."""
        if self._store.doomed is not None:
            await anyio.lowlevel.checkpoint()  # the body may try again and again
            raise self._store.doomed.again()

    async def _find(self, name: str) -> KeptStep | None:
        """The step kept under this name, which this attempt uses from now on."""
        check_name("step", name)
        await self._stop_if_doomed()
        kept = await self.journal.read() if self.journal.kept is None else self.journal.kept
        if name in self._taken or (name in self._reserved and not self.is_undoing_here):
            await self.stop_if_leaving()
            raise self.journal.refused(
                name, "its name was used before in this attempt; give each step a name of its own"
            )
        self._taken.add(name)
        return kept.get(name)

    async def _rest(self, name: str, call: StepCall, seconds: float) -> float:
        """The rest, in seconds, of a time that began with the first call in the job."""

        async def ends_at() -> float:
            return self.journal.now + seconds

        return await self._take(name, call, ends_at) - self.journal.now


_undoing_here: ContextVar[Steps | None] = ContextVar("inconcert_undoing_here", default=None)
