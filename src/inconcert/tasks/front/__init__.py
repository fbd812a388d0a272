"""The front of tasks: the part of a coordinator that registers, enqueues and runs them, and the parts behind it.

    Coordinator
      |  is a
      v
    TaskCoordinator     the verbs of users: `task`, `cron`, `enqueue`, `run_worker`, `consume`, `schedules`, `tasks`
      |  makes when one is asked for
      v
    TaskParts           one for each coordinator, for as long as it lives: the registry of its functions, the batcher of
                        new jobs, the waits for jobs, schedules, and the calls of operators

A coordinator imports the other rooms only when its first task, job or worker is asked for: a program with nothing but
locks pays nothing for jobs.  A worker is imported when it runs.

Invariants.

* The parts exist before the coordinator is opened, because tasks are declared at module level.  They refer to the
  session by `SessionRef`, and each call finds the one that is open now, or raises `NotConnected`.
* A function is registered once under its name; a second one of that name is refused where it is declared.
* Nothing is decided here: options are checked in `sending/`, and verdicts come from `running/`.

Begin with `task_coordinator.py`; then `parts.py`.
"""
