"""At-least-once delivery, for jobs and for the items of queues: claim, heartbeat, ack, nack, and recovery.

    server, one tag                         this process
    ---------------                         ------------
    queue    ids, the next one first  --->  claim(count): ids and bodies, under one number for each claim
    claimed  worker -> id, number           WorkerLease: all that one worker holds here
    workers  worker -> when presumed  <---  heartbeat: one command, however many claims
             dead, by the lease clock
    delayed, dead                     <---  ack, nack: the end of a claim, by its number

The lease belongs to the worker, not to the claim: a heartbeat renews all of them.  Its deadline here counts from before
the heartbeat was sent, on a monotonic clock, and is earlier than the server's: everything that the worker holds stops
before another can have it.

While a consumer is open, each partition has a promoter, which moves due entries to their queue, and a reaper, which
requeues the claims of dead workers.  Any number of them may run at once, in all processes: scripts decide.

Rules of failure.

* The reply of a claim is lost: the next claim names the same number, and gets the same answer.
* The reply of an end is lost: it stays with the worker, and is sent again until it is answered, or the claim is lost.
* The event loop stands still: a thread sends the heartbeat for a bounded time (`watchdog.py`).
* Two workers have died with an entry: it is claimed alone (`suspects.py`), so that it takes nothing else along; after
  `max_crashes` it is dead-lettered.
* The server has come back with older data: worker and server compare their claims (`comparison.py`).

The meaning of a job or an item belongs in `tasks` or `queues`: arguments, results, and the user's view of a claim.

Begin with `worker_lease.py`, under which one worker holds its claims, then `claimed.py`, which is one of them; then
`consumer.py` and `partition.py`.
"""
