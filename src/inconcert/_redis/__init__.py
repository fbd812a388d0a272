"""The only code that speaks Redis: connections, commands and scripts, the inbox, and the names of keys and channels.

Primitives, leases and delivery do not belong here, and `redis.*` is imported nowhere else, except for type hints.
Errors of the driver become those of `inconcert.errors` here.

Begin with `channel.py`, which carries every command, then `scripts.py`, which binds Lua to Python.
"""
