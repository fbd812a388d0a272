"""A job as it is stored: its keys, its envelope, its status, and the facts that live beside it.

Nothing here sends or runs a job.  All rooms above read and write a job through this one.

Begin with `store.py`, which names every key of a partition, and `envelope.py`, which seals a call and opens it;
then `status.py`, the words for where a job is.
"""
