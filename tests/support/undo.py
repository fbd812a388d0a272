"""A shop whose jobs undo their steps, and what the server keeps of undoing."""

from inconcert import Coordinator
from tests.support.durable import kept
from tests.support.raw import raw

__all__ = ["Shop", "is_clean", "mark", "marks"]


class Shop:
    """What happens outside of the jobs, in order."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.broken = 0  # how often a refund fails from now on

    async def charge(self, what: str) -> str:
        """A step."""
        self.did.append(f"charge {what}")
        return f"p-{what}"

    async def refund(self, payment: str) -> None:
        """What undoes it."""
        if self.broken:
            self.broken -= 1
            raise ConnectionError("the bank does not answer")
        self.did.append(f"refund {payment}")


async def marks(concert: Coordinator) -> dict[bytes, bytes]:
    """What is noted of undoing jobs."""
    found: dict[bytes, bytes] = {}
    for keys in concert._jobs.partitions:
        found |= await raw(concert).hgetall(keys.undo)
    return found


async def mark(concert: Coordinator, job_id: str, text: str) -> None:
    """Note how a job that undoes its steps ends: `cancelled `; or `-`, that it has something to undo."""
    keys, flag = concert._jobs.of_id(job_id), b"u" if text == "-" else b"v"
    await raw(concert).hset(keys.undo, job_id, text)
    known = await raw(concert).hget(keys.facts, job_id) or b" 0 0 "
    await raw(concert).hset(keys.facts, job_id, known if flag in known.partition(b" ")[0] else flag + known)


async def is_clean(concert: Coordinator) -> bool:
    """Whether no step, and no note of undoing, is kept."""
    return await kept(concert) == {} == await marks(concert)
