"""Steps that are kept: a body that stops or dies goes on after its last finished step, here or elsewhere.

    body                Steps                     server (one hash: number and job -> step)
    ----                -----                     ------
    step("charge") ---> kept? -- yes ---------->  its stored result is returned; nothing runs
                          |
                          no --> run it --------> `commit_step`: under this claim, numbered, signed
                                                  the result is returned as it is read back from its JSON

A body is run again from its head in each attempt.  Steps are found by their names, not by their order, so the code
around them may change; a step whose function or arguments have changed under the same name is refused
(`StepChanged`), because its old result would answer another question.  All steps of a job are read at once, with
the first one that is asked for.

Everything else is a step, too:

    durable.sleep, wait_for   a step that holds an instant.  Until then the body leaves (`body_exits.Asleep`): its job
                              is delayed, and its worker is free.  A message or the instant brings it back.
    durable.each              a step that holds a position, moved after each item, or after some (`cursor.py`).
    durable.undo              a block; a step notes that it was entered.  When the job fails for good, the body is run
                              once more as `is_undoing`: what was kept is returned, nothing else is begun, and each
                              block is left with the error that undoes it, the last entered first (`undo.py`).

The exits of a body that do not count as failures are classes in `body_exits.py`.  `except Exception` in a body does not
swallow them; one that is swallowed nevertheless is raised again by the next step.

Invariants.

* A step is stored under the claim.  If the worker was presumed dead meanwhile, nothing is stored, and the body stops.
* A result is returned only once it is stored, and is then the same in each attempt.
* A name is used once in an attempt.  Two tasks of one body may take steps at the same time; each has its own name.
* At most 1,000 steps and 16 MiB for a job: all are read when it goes on.

`Journal` stores through `StepStore`, which `running/step_store.py` implements; no room above is imported here.  The
front for users is `inconcert.durable`.

Begin with `steps.py`, the engine of one attempt; then `journal.py`, the steps that are kept, as this attempt reads and
adds them, and `kept_step.py`, one step in its stored form.
"""
