"""Messages to jobs: the first of each name is kept until the job ends, and wakes the job if it waits for it.

A job waits with `durable.wait_for`; see `steps.py`.

Source: docs/explanation/steps.md
"""

from inconcert._core.origin import Origin
from inconcert._redis.protocol.scripts import Command
from inconcert._rules.names import check_name
from inconcert.errors import MessageRefused
from inconcert.tasks.records.arguments import encode_result
from inconcert.tasks.records.store import SEND, JobKeys

MESSAGE = "message"  # the kind as which a message is signed

FOUND = 1  # what the receiving script answers of a message that is there
_KEPT, _WAITS_ELSEWHERE, _TOO_MANY = 1, 2, 3  # what the sending script answers


def packed_name(name: str) -> str:
    """A name as scripts store several of them: with its length in bytes before it."""
    return f"{len(check_name('message', name).encode())} {name}"


class JobMessage:
    """The sender of one message to a job.

    Raises:
        InvalidPayload: JSON cannot hold the value, or it is larger than 1 MiB.
    """

    __slots__ = ("_job_id", "_keys", "_message", "_name", "_packed", "_queue", "_request")

    def __init__(self, origin: Origin, keys: JobKeys, job_id: str, name: str, value: object) -> None:
        self._keys = keys
        self._job_id = job_id
        self._name = name
        self._packed = packed_name(name)
        text = encode_result(f"message {name!r} to job {job_id}", value)
        self._message = origin.key_ring.sign(MESSAGE, f"{self._packed} {job_id}", text)
        self._request = origin.new_address()
        self._queue = "none"  # in which the job waits for it, once the server has said so

    def send(self) -> Command:
        """The command that sends it."""
        queue = self._keys.queue(self._queue)
        return SEND(
            self._keys,
            queue,
            id=self._job_id,
            name=self._packed,
            message=self._message,
            queue_name=queue.name,
            request=self._request,
        )

    def was_kept(self, answer: tuple[int, bytes]) -> bool | None:
        """True if it was kept, by the answer to `send`; None if it is to be sent again.

        Raises:
            MessageRefused: The job has too many messages.
        """
        outcome, queue = answer
        if outcome == _TOO_MANY:
            raise MessageRefused(self._job_id, self._name)
        if outcome == _WAITS_ELSEWHERE:
            self._queue = queue.decode()
            return None
        return outcome == _KEPT
