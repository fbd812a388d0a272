"""A job from outside: wait for it, read its stream, send it a message, cancel it.

A call that waits subscribes first and looks afterwards, so that no end is missed; one subscription of the process
serves all who wait for the same job.  What runs the job belongs in `running`.

Begin with `job.py`, the handle that `enqueue` returns; then `feed.py` and `watch.py`, on which all waiting stands.
"""
