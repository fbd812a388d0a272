"""Steps that are kept: a body that stops or dies goes on after its last finished step, here or elsewhere.

A body is run again from its head, and each step that it did before gives back what was stored.  What it undoes, pauses
for and loops over is a kind of step, too.  The front for users is `inconcert.durable`; the scripts are asked by
`worker_lease` in `running`.

Begin with `steps.py`, the record of one body; then `kept_step.py`, one step in its stored form, and `body_exits.py`,
the exits of a body that do not count as failures.
"""
