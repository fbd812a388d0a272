"""Work handed from one process to another: tasks, their jobs, and the workers that run them.

A *task* is a registered function, a *job* one call of it as it is stored on the server, an *attempt* one run of that in
a worker.  The server keeps everything that must outlive a process: no process knows where a job is but by asking it.

Where a job is, and who may move it from there.  `records/life.py` has each move as a row, with the verdict that it
carries out; a script names its rows under `MOVES`, and does no others.

    state    what that means                       who may move it                            where to
    -----    ---------------                       ---------------                            --------
    new      it is about to be added               a producer, a schedule, or the script      queue, delayed,
                                                   that ends another job                      waiting, dead
    queue    its id is in a list, or, with a       a worker that claims                       claimed
             priority, in a sorted set             that worker, if a limit holds it back      delayed
                                                   a consumer, if it expires unserved         dead
    delayed  it is due later, or stands in the     any consumer, when it is due               queue
             line of a limit                       the end of a job that frees its limit      queue
                                                   a message, if it sleeps for one            queue
    waiting  it runs after others, and not all     any consumer, when these have ended        queue, delayed, dead
             of these have ended                   any consumer, if it expires                dead
    claimed  one worker holds it, by one number    that worker, by that number                gone, dead, queue,
                                                                                              delayed
                                                   any other, once its lease has lapsed       queue, dead
    dead     it was dead-lettered                  an operator, or a program                  queue, delayed,
                                                                                              waiting, gone
    gone     nothing is left, but perhaps          its worker, if it was to run at most once  queue
             its result                            and was never handed out

A caller or an operator may cancel a job in `queue`, `delayed` and `waiting`: it is gone, or comes to its queue once
more if it has something to undo.  A claimed one is marked, and its worker ends it.

Rules of failure.

* At least once.  A claim is a lease: a worker that is silent for too long is presumed dead, and its jobs go to others.
  It stops them itself before that, by its own clock.  A body that was running may thus run twice.
* A verdict counts once.  It names the number of the claim; if the server knows another number, it changes nothing.
* An attempt that raises counts, and another one follows later, until `max_attempts` have failed; then the job is dead.
* A worker that dies with a job counts apart: after `max_crashes` of them the job is dead, because it may be the cause.
* Whatever is not the job's own doing does not count: a worker that closes, a body that is cancelled with it, a sleep, a
  limit, or a worker that does not know the task yet.
* A job whose text cannot be read, or is not signed as it must be, is dead at once, unread.
* A script whose reply is lost is sent again, and answers as the first time.  If that cannot be done in time, the
  caller gets `OutcomeUnknown`, never a guess.
* Messages to processes are hints.  Each wait registers first, then looks, and looks again by a timer: a lost message
  costs time, not a job.

Where a feature hooks in.  A job has a body, and perhaps more: limits, parents, a group, a unique name, a history,
steps, attempts that failed.  Each of these is a plug, `_lua/plugs/jobs/NAME.lua`, with the keys that only it has,
and functions for points of a job's life.  A job that has more is flagged in `facts`, or says so in its body, so the
end of a plain job names no key of a plug.

    hook          called for jobs that                   used by
    ----          --------------------                   -------
    on_release    are claimed no more, for any reason    limits: frees their places
    on_back       leave their worker and do not end      durable: forgets how far they were, unless they go on there
    on_failure    have failed, or whose worker died      attempts: notes that
    on_end        are gone or dead                       after, attempts, groups, history, order, unique, durable
    on_dead       are dead                               deaths: adds the job of `on_dead=`
    on_revive     are dead and are replayed              after: forgets how they ended; unique: their names again
    on_replay     are members of a group, and replayed   groups: counts them as not ended
    on_purge      are dead and are dropped               after, attempts, groups, durable: forget them

In Python a feature is a file with its verb and its option; the worker takes the plain form of a script as long as it
knows of nothing more (`JobState.is_plain`), and the form with plugs if the server says that there is more.

The rooms, the lowest first; each imports from those before it alone:

    records/      a job as it is stored: keys, envelope, status, terms
    durable/      steps: a body that goes on after its last finished one
    following/    a job from outside: its result, its stream, messages, cancellation
    sending/      jobs on their way in: tasks, drafts, batches, groups
    schedules/    jobs by the clock
    running/      workers: claim, run, renew, end
    operating/    pages, counts and dead letters, for operators
    front/        the part of a coordinator that is about tasks

Delivery itself, the claim with its heartbeat and recovery, is not here but in `_claims`: queues of items have the same.

Source: docs/explanation/tasks.md, docs/contributing/job-keys.md, docs/contributing/decisions/0015-plugs.md
"""
