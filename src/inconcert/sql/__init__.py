"""Beside a SQL database: an outbox, and fences that the database checks. Needs the extra `inconcert[sql]`.

```python
from inconcert.sql import Outbox, fence, fences

outbox = Outbox(concert, engine)

async with engine.begin() as connection:  # once
    await connection.run_sync(outbox.table.create)
    await connection.run_sync(fences.create)

async with sessions.begin() as session:
    await outbox.enqueue(session, ship.call(17))

async with concert.lock("item:42") as lease, sessions.begin() as session:
    await fence(session, lease)
```

PostgreSQL and SQLite are supported, with whichever driver of SQLAlchemy. Begin with `rows.py` and `tokens.py`.
"""

from inconcert._rules.extras import needs_extra

with needs_extra("sql"):
    import sqlalchemy  # noqa: F401  # pyright: ignore[reportUnusedImport] - the error names this package

from inconcert.errors import StaleToken
from inconcert.sql.outbox import Outbox
from inconcert.sql.sync_outbox import SyncOutbox
from inconcert.sql.tokens import fence, fence_statement, fence_sync, fences

__all__ = ["Outbox", "StaleToken", "SyncOutbox", "fence", "fence_statement", "fence_sync", "fences"]
