"""Users of a server who have just some rights."""

from collections.abc import Awaitable, Callable

from inconcert import Coordinator
from inconcert._redis.operate.rights import least_rights
from tests.support.servers import RealServer

__all__ = ["DATABASE", "Story", "tell"]

DATABASE = 5  # not 0, which needs no SELECT
Story = Callable[[Coordinator, RealServer], Awaitable[object]]


async def tell(story: Story, server: RealServer, rights: list[str], namespace: str) -> None:
    """As a user of this namespace who has just these rights; opening included."""
    rules = [rule for rule in least_rights(namespace, server=server.version) if not rule.startswith("+")]
    pattern = f"&{namespace}:{DATABASE}:signal:s*"
    server.command("ACL", "SETUSER", namespace, "on", ">secret", *rules, pattern, *(f"+{right}" for right in rights))
    url = f"redis://{namespace}:secret@127.0.0.1:{server.port}/{DATABASE}"
    async with Coordinator(url, namespace=namespace) as concert:
        await story(concert, server)
