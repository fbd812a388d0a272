"""Beside a SQL database: fences that the database checks. Needs the extra `inconcert[sql]`.

```python
from inconcert.sql import fence

async with concert.lock("item:42") as lease, sessions.begin() as session:
    await fence(session, lease)
    ...
```

PostgreSQL and SQLite are supported, with whichever driver of SQLAlchemy. Begin with `fence.py`.
"""

from inconcert._rules.extras import needs_extra

with needs_extra("sql"):
    import sqlalchemy  # noqa: F401  # pyright: ignore[reportUnusedImport] - the error names this package

from inconcert.errors import StaleToken
from inconcert.sql.fence import fence, fence_statement, fence_sync, fences

__all__ = ["StaleToken", "fence", "fence_statement", "fence_sync", "fences"]
