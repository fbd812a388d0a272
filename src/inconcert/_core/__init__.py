"""Shared mechanisms of primitives: the session, leases and their renewal, lines of waiters, bodies of `async with`.

A mechanism of one primitive belongs beside that primitive, commands belong in `_redis`, and pure decisions in `_rules`.

Begin with `session.py`, the part of a coordinator that every primitive is given, then `permits.py` and `acquirable.py`,
on which locks and semaphores are built.
"""
