"""Tools for testing code that coordinates: another server under it, assertions, and a simulated world.

It needs `inconcert[testing]`.  The fixture `concert` is in `pytest_inconcert`, which pytest finds by itself.
"""

from inconcert._rules.extras import needs_extra

with needs_extra("testing"):
    from inconcert.testing.jobs import assert_enqueued, drain, refute_enqueued
    from inconcert.testing.leases import assert_nothing_held, lapse
    from inconcert.testing.overrides import Override, override
    from inconcert.testing.simulation import Process, World, simulate

__all__ = [
    "Override",
    "Process",
    "World",
    "assert_enqueued",
    "assert_nothing_held",
    "drain",
    "lapse",
    "override",
    "refute_enqueued",
    "simulate",
]
