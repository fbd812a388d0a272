"""The only code that speaks Redis, in seven rooms; each imports from those before it in this list, never a later one.

`protocol/`: names of keys, commands, scripts, replies.  `driver/`: redis-py, its clients and their options.  `wire/`:
connections for commands, broadcasts, the inbox and bells.  `embedded/`: servers that a process starts for itself.
`find/`: which server to connect to.  `blocking/`: the same commands for threads.  `operate/`: views for operators.

Primitives, leases and delivery do not belong here, and `redis.*` is imported nowhere else, except for type hints.
Errors of the driver become those of `inconcert.errors` here.

Begin with `wire/channel.py`, which carries every command, then `protocol/scripts.py`, which binds Lua to Python.
"""
