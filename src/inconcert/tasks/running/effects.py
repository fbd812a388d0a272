"""Effects of bodies, on their way to the server: sent until it is answered, or the worker is lost.

A step has run, an item of a stream was yielded: to run it again because the link was slow would do it twice. So, as
acknowledgements are, such a call is repeated behind the next heartbeat that is answered. It waits for room before it is
sent, and its caller may be cancelled at any time: it is sent nevertheless.
"""

import asyncio
import logging
from contextlib import suppress

from inconcert._core.session import Session
from inconcert._redis.protocol.replies import Reply
from inconcert._redis.protocol.scripts import Command
from inconcert._redis.wire.call import Call, Callers
from inconcert.errors import InconcertError, NotConnected, OutcomeUnknown, Unavailable

_log = logging.getLogger("inconcert.tasks")


class Effects:
    """Those of one worker."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._unconfirmed: list[_Effect] = []
        self._is_lost = False

    async def keep(self, what: str, command: Command) -> Reply:
        """Run a command that keeps what has happened, once there is room for it; returns its reply.

        Args:
            what: The thing that is kept, as the log names it.
            command: May be run again, also after later ones; its reply is 0 where the claim is lost.

        Raises:
            OutcomeUnknown: The worker was lost meanwhile, and the server has not answered.
            WrongState: A key holds something that is not ours.
        """
        effect = _Effect(self, what, command, self._session.loop.create_future())
        try:
            await self._session.channel.has_room(effect.key, effect)
        except asyncio.CancelledError:
            with suppress(NotConnected):
                self._session.channel.submit(effect)
            raise
        except Unavailable as error:
            effect.fail(error)
        else:
            self._session.channel.submit(effect)
        return await effect.kept

    def keep_nowait(self, what: str, command: Command) -> asyncio.Future[Reply]:
        """The same, sent at once; returns the future of its reply."""
        effect = _Effect(self, what, command, self._session.loop.create_future())
        self._session.channel.submit(effect)
        return effect.kept

    def send_again(self) -> None:
        """Repeat what was not confirmed."""
        effects, self._unconfirmed = self._unconfirmed, []
        for effect in effects:
            if not effect.kept.done():
                with suppress(NotConnected):
                    self._session.channel.submit(effect.again())

    def lose(self) -> None:
        """The worker is lost: nothing is repeated any more, and what was not confirmed counts as not kept."""
        self._is_lost = True
        for effect in self._unconfirmed:
            effect.lose()

    def note_failure(self, effect: "_Effect", error: InconcertError) -> bool:
        """Note that an effect may not have reached the server; returns whether it will be repeated."""
        if self._is_lost or not isinstance(error, Unavailable | OutcomeUnknown):
            return False
        _log.warning("%s may not be kept yet: %s; trying again", effect.what, error)
        self._unconfirmed.append(effect)
        return True


class _Effect(Call):
    """A call that keeps what has happened."""

    __slots__ = ("_effects", "kept", "what")

    def __init__(self, effects: Effects, what: str, command: Command, kept: "asyncio.Future[Reply]") -> None:
        super().__init__(command, must_run=True)
        self._effects = effects
        self.what = what
        self.kept = kept  # the future of the reply, of whichever sending

    def again(self) -> "_Effect":
        """The same, to be sent once more: the reply to this one may still come."""
        return _Effect(self._effects, self.what, self.command, self.kept)

    def lose(self) -> None:
        """Count it as not kept."""
        if not self.kept.done():
            self.kept.set_result(0)

    def answered(self, reply: Reply) -> None:
        if not self.kept.done():
            self.kept.set_result(reply)
        super().answered(reply)

    def failed(self, error: InconcertError) -> None:
        if self.kept.done() or not self._effects.note_failure(self, error):
            super().failed(error)

    def callers(self) -> Callers:
        return (self, self.kept)
