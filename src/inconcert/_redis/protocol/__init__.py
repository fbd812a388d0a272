"""The words of the protocol: keys and channels by name, commands as bytes, scripts, replies, and the errors they mean.

Everything here is computed from its arguments.  Connections do not belong here, nor does the driver; a decision that
has nothing to do with Redis belongs in `_rules`.

Begin with `scripts.py`, which binds a Lua file by the names in its header, then `keys.py`.
"""
