"""Jobs by the clock: cron and intervals, declared in code or stored on the server.

    @concert.cron, every=       schedules.put(...)
           |  declared by a worker     |  stored, signed
           v                           v
    server: `looks_in_code`     `looks`     id -> when a worker looks at it next
                     |             |
                     v             v
    PartitionFollower     asks for those that are due; for a few seconds no other worker gets them
                     |
                     v
    Timetable             the instants after the last one that is done with, and up to now
                     |
                     v
    one script            enqueues a job for each, and moves the schedule to its next instant

Both kinds are followed by this one mechanism, in each worker, without a leader: a worker sleeps until the next due
instant, or until something is put that is due earlier.

Invariants.

* An instant gives one job, however many workers look: the id of the job is made of the schedule and the instant, and
  the script that enqueues it compares the last instant that is done with.
* Instants are computed from the server's clock, and are the same in every process.  If that clock is set back, no
  instant comes again.
* A worker that dies with a schedule in hand delays it by a few seconds; nothing is lost, because the schedule moves in
  the script that enqueues.
* Missed instants, at which no worker ran, are skipped, run once, or all made up for, as the schedule says, at most 100.
* A job of a schedule in code is made by the code of the worker that looks; so after a release no job has the old
  arguments.  One that no code declares any more is forgotten after a while.
* Hours that clocks skip or repeat are the business of `timetable.py` alone.

Begin with `timetable.py`, which computes instants; then `schedule_follower.py`.
"""
