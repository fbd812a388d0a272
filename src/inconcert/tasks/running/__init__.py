"""Jobs in a worker: claimed, run, renewed, ended.

    Worker          runs bodies, one task for each, as many as it has room for
      |  claim(count)                                ^ a job is over: room for one more
      v                                              |
    Consumer        one line of claims ahead, one policy for each partition; sleeps at the bells of its queues
      |  one script claims: ids from lists, bodies, attempts, facts
      v
    JobWorkerLease  one for each partition: everything that this worker holds there, under one heartbeat
      |  makes
      v
    JobState        one job here: its number, its steps and stream, its verdict; `ClaimedJob` is its front for users

How a job ends.  `async with job` gives exactly one verdict: done, failed, given back, or asleep until later.
The verdict is noted in the lease at once, and all verdicts of one turn of the loop travel in one script
(`ends.py`), beside the next claim.  An ending that may not have arrived stays in the lease and is sent again, until the
server has answered or the claim is lost.

States of a job here, and what moves it:

    ahead ------> handed out ------> over          a verdict was given; the server is told, or will be
      |               |
      +---------------+-----------> lost           the lease has run out by the local clock, before the server lets
                                                   another worker have it; its body is cancelled

Invariants.

* One number for each claim.  Each script that ends, renews or stores names it, and changes nothing if the server knows
  another: a worker that was frozen, or a verdict that comes late, cannot touch a job that another worker has by now.
* A lease ends here first.  The local deadline counts from before the heartbeat was sent, on a monotonic clock, so no
  clock of another machine matters.
* A claim whose answer was lost is found again: the next claim names its number, and the server answers with the same.
* A job that is claimed ahead and not handed out goes back to the front when the consumer closes, uncounted.
* No error stays in a task: `Worker._ended` gives each job a verdict, whatever its body or the worker itself has raised.

What else runs while a consumer is open, each a task of its own in the background: the promoter of due jobs and the
reaper of dead workers (`_claims`), the relay that tells jobs that their parents have ended, the sweeper of what no job
needs, and the report of the queues that are served (`served_queues.py`), which also ends expired jobs of
queues that nobody serves.

`health.py` answers whether a worker is well, from any thread: it reads signs that the loop leaves, and awaits nothing.
A job whose task this process does not know, or whose arguments do not fit, goes to others (`unknown_tasks.py`).

Begin with `worker.py`; then `consumer.py`, `worker_lease.py` and `job_state.py`.
"""
