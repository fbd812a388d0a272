"""Jobs on their way in: options, drafts, batches, groups.

A call is checked and sealed before any I/O.  All that is sent in one turn of the loop goes in one script for each queue
of each partition, and each caller gets an answer of its own.

Begin with `task.py`, what `@concert.task` makes; then `draft.py`, a job that has no id yet, and `enqueue.py`, which
collects and sends.
"""
