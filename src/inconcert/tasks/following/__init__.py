"""A job from outside: wait for it, read its stream, send it a message, cancel it.

    caller                         this process                       server
    ------                         ------------                       ------
    await job.result() ----------> Watch, one for each job  -------->  `watch`: note our address, answer how it stands
                                     |  sleeps on a future             ...
                                     |                    <--------   the script that ends the job tells each address
                                     v  reads the outcome   -------->  `result:ID`
    all callers of that job are answered, each with an error of its own if there is one

No wait polls.  The first step of a wait is one script that registers and looks, so an end in between is not missed.  A
message is only a hint: it may be lost with a connection.  So a wait looks again after each reconnection, and
once a minute, before the server forgets the address.

The same shape serves streams (`feed.py`, `stream.py`): one subscription and one copy of all items for the readers of
a job here, each with a position of its own.  A slow reader holds up nobody, and one that is at the same position as
another does not read again.

Messages to a job.  A message (`messages.py`) is stored with the job, signed, and wakes it if it sleeps for
that name.  A cancellation (`cancellation.py`) takes the job at once from wherever it waits; a running one is noted, and
its worker is told through its inbox and by the next heartbeat, so it arrives even if the hint is lost.

What became of the members of a group (`group_results.py`) is read in pages, by number, from what the group keeps; a
reader has no state on the server, and the end of the callback ends all readers.

Invariants.

* A result that was returned once is returned again until its `result_ttl` is over; then the job is unknown, not failed.
* A caller that is cancelled leaves nothing behind: with the last one its watch goes, and the server is told; if that is
  lost, it drops the address within three minutes.
* Nothing here changes how a job ends; only its worker does, under its claim.

`blocked_worker.py` knows of waits inside bodies: a worker all of whose bodies wait for jobs that only it can run stands
still, and says so once.

Begin with `job.py`, the handle that `enqueue` returns; then `watch.py` and `feed.py`.
"""
