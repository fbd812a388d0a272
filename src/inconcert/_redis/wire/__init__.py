"""Connections that reconnect: one for commands, one for broadcasts and the inbox, one for the bells of idle consumers.

The background work that all of them are made of is here, too.  The choice of a server belongs in `find`, and
connections of threads in `blocking`; a cluster's connections are made of these in `_cluster`.

Begin with `wire.py`, one connection; then `link.py`, which reconnects it, and `channel.py`, which carries commands.
"""
