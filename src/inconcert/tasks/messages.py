"""Messages to jobs: the first of each name is kept until the job ends, and wakes the job if it waits for it.

A job waits with `durable.wait_for`; see `steps.py`.

Source: docs/explanation/steps.md
"""

from inconcert._core.session import Session
from inconcert._rules.names import check_name
from inconcert.errors import MessageRefused
from inconcert.tasks.arguments import encode_result
from inconcert.tasks.store import SEND, JobKeys

__all__ = ["FOUND", "MESSAGE", "packed_name", "send"]

MESSAGE = "message"  # the kind as which a message is signed

FOUND = 1  # what the receiving script answers of a message that is there
_KEPT, _WAITS_ELSEWHERE, _TOO_MANY = 1, 2, 3  # what the sending script answers


def packed_name(name: str) -> str:
    """A name as scripts store several of them: with its length in bytes before it.

    Raises:
        InvalidName: `name` is empty or longer than 512 bytes.
    """
    return f"{len(check_name('message', name).encode())} {name}"


async def send(session: Session, keys: JobKeys, job_id: str, name: str, value: object) -> bool:
    """Send a message to a job; see `Job.send`."""
    packed = packed_name(name)
    text = encode_result(f"message {name!r} to job {job_id}", value)
    message = session.key_ring.sign(MESSAGE, f"{packed} {job_id}", text)
    answer, queue, request = _WAITS_ELSEWHERE, "none", session.new_address()
    while answer == _WAITS_ELSEWHERE:
        place = keys.queue(queue)
        command = SEND(keys, place, id=job_id, name=packed, message=message, queue_name=place.name, request=request)
        answer, found = await session.run(command)
        queue = found.decode()
    if answer == _TOO_MANY:
        raise MessageRefused(job_id, name)
    return bool(answer == _KEPT)
