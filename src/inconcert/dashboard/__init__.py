"""A dashboard of a namespace, as an ASGI application.  Needs the extra `inconcert[dashboard]`.

```python
from fastapi import FastAPI
from inconcert.dashboard import Dashboard, read_only

app = FastAPI()
app.mount("/inconcert", Dashboard(concert, allow=read_only))
```
"""

from inconcert._rules.extras import needs_extra

with needs_extra("dashboard"):
    from inconcert.dashboard.app import Dashboard
    from inconcert.dashboard.permissions import Allow, Permission, read_only
    from inconcert.dashboard.redaction import Part, Redact

__all__ = ["Allow", "Dashboard", "Part", "Permission", "Redact", "read_only"]
