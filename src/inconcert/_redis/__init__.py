"""The only code that speaks Redis, in seven rooms; each imports from those before it in this list, never a later one.

`protocol/`: names of keys, commands, scripts, replies.  `driver/`: redis-py, its clients and their options.  `wire/`:
connections for commands, broadcasts, the inbox and bells.  `embedded/`: servers that a process starts for itself.
`find/`: which server to connect to.  `blocking/`: the same commands for threads.  `operate/`: views for operators.

    a primitive
      |  ACQUIRE(keys, holder=..., ttl_ms=...)      a script, bound by the names in its header (`protocol/scripts.py`)
      v
    Channel     all commands of the process on one connection, written once in a turn of the event loop, answered in
      |         order.  A cancelled caller only stops waiting.
      v
    Link        reconnects, as long as the coordinator is open
      v
    Wire        one connection: bytes out, replies in

Three more connections carry broadcasts, the inbox, and the bells of idle consumers.

Rules of failure.

* A lost connection: every unanswered call is sent again, in the same order, until its own timeout.  Therefore each
  script answers a second run as the first; its header says how, under `TWICE`.
* An error reply says whether anything was executed (`protocol/replies.py`).  If nothing was, the caller gets
  `Unavailable`; if nobody can know, `OutcomeUnknown`.
* A message or a token is a hint.  After a reconnection everyone who waits looks again.
* Another server than before, after a failover: the connections go there, and leases that it does not know are lost.

Primitives, leases and delivery do not belong here, and `redis.*` is imported nowhere else, except for type hints.
Errors of the driver become those of `inconcert.errors` here.

Begin with `wire/channel.py`, which carries every command, then `protocol/scripts.py`, which binds Lua to Python.
"""
