"""Commands of threads, for `SyncProducer`: no event loop, one connection that all threads of a process share.

A cluster's connections of threads are made of these in `_cluster`.  Whatever a coroutine awaits belongs in `wire`.

Begin with `blocking_channel.py`, then `blocking_wire.py`.
"""
