"""Jobs on their way in: options, drafts, batches, groups.

    task.call(1, 2) ---------> Draft       task, arguments as JSON, options: checked, no id yet, may be sent many times
    task.enqueue(1, 2)           |
    concert.enqueue_many(...)    v
                               NewJob      a draft with an id, its partition, its time to live, its signed text
                                 |
                                 v
    EnqueueBatcher             all NewJobs of one turn of the loop, sorted into as few scripts as can be
                                 |         plain            `tasks/enqueue_plain`   goes to its queue, and nothing else
                                 |         delayed, unique, `tasks/enqueue`
                                 |         limited
                                 |         after others     `tasks/enqueue_after`   one for each
                                 |         after a silence  `tasks/debounce`        one for each
                                 |         newest wins      `tasks/replace`         one for each
                                 |         of a chosen id   `tasks/enqueue_own`     one for each
                                 v
                               Job         the handle, with its own answer: it exists, or why not

All that can be wrong is found before any I/O, in the order in which it is written: names and options (`options.py`, one
table of checks), arguments against the signature (`records/arguments.py`), JSON and size (`records/envelope.py`).

Invariants.

* A caller is answered for its own jobs.  An error of one script reaches only those whose jobs were in it; a caller that
  is cancelled takes nothing back: its jobs may be there, and the others of the batch are.
* A request that is sent again after a lost connection adds nothing: it is numbered in its session, and the
  server remembers the numbers that it has seen.  If no answer ever comes, the error is `OutcomeUnknown`.
* One script has at most 500 jobs and 1 MiB, and one call at most 5,000 jobs and 8 MiB under way, so that neither the
  server nor this process holds up others.

A *group* (`group.py`) is two scripts more: one opens it and makes its callback wait, others add members, each
with the group's id in its own, so that the end of a job finds its group without a look into its envelope.

`follow_ups.py` is the other way in: jobs that a body enqueues on its success go in the script of its acknowledgement.

Begin with `task.py`, made by `@concert.task`; then `draft.py` and `enqueue.py`.
"""
