"""A job as it is stored: its keys, its envelope, its status, and the facts that live beside it.

    bodies:  id ->  1795778377006 3/1:ab12 hmac1 KEY 5f3c.. {"name":"shop.send","args":[1]}
                    |             |        |                |
                    when it came  |        its signature,   the envelope (`envelope.py`): the call and its terms
                                  |        if there are keys
                                  marks for scripts, most often none: crashes, limits, history, priority

    states:  id ->  where it is, if not in its queue (`life.py` has all states, `status.py` the words for users)
    facts:   id ->  flags of the features that it has, failed attempts, dead workers, the latest error

Scripts decode no envelope on the usual path: all that they need stands before it, or in `facts`.  A worker trusts the
envelope alone, once its signature is verified: the marks are not signed.

The id of a job ends in the number of its partition, and all keys of a partition share one slot.  So one script can do
everything about a job, and two jobs of one queue may lie on two masters; whatever goes from one partition to another is
passed on in three steps that may be repeated (`dependents.py`).

What belongs in this room: a feature's terms, as far as a job carries them (`limits.py`, `retry.py`, `history.py`,
`deaths.py`, `group_ids.py`), the conversion of arguments (`arguments.py`), and counts of ends (`counts.py`).

Invariants.

* An envelope is written once and never changed in place; another text for a job is a move with a script of its own.
* An envelope is data: a worker calls only functions that its own code has registered, by name.
* What is read back equals what was given, or the value is refused before anything is sent.

Nothing here sends or runs a job.  All rooms above read and write a job through this one.

Begin with `store.py`, which names every key of a partition, and `envelope.py`, which seals a call and opens it;
then `status.py`, the words for where a job is.
"""
