"""Jobs as an operator sees them: pages, counts, dead letters, and the acts on them.

    Tasks (`admin.py`)     the front, `concert.tasks`
      |-- pages            `job_pages.py`: ids first, in portions, then the stored facts of those that are still there
      |-- one job          `job_info.py`: its row and its body, as data for people and programs
      |-- dead letters     `dead_jobs.py`: list, replay and purge; `replaying.py` takes along those that died with one
      |-- many jobs        `job_actions.py`: cancel, promote, replay or purge all that a filter chooses
      |-- strict order     `stopped_keys.py`: the keys that a dead job stops
      '-- the work         `queue_stats.py`: what each queue and each limit has to do

Nothing here is on the path of a job that runs, and no room below imports it.

Invariants.

* A look changes nothing, and sees each partition at another instant: a job that moves meanwhile may be seen twice, or
  not at all.  A page carries its position, so the next one goes on behind it, whatever has come or gone.
* Bounded work: a script looks at a portion, and the caller asks for the next one.  Queues may be of any length.
* An act is one script for each portion.  Whatever stops a call, each job is done with or untouched, and a second call
  goes on with the rest.
* An act looks again at the state of the job, in the script that moves it: a job that has gone on since it was listed is
  left alone, and not counted.
* A body is read for people as far as it can be; one that is not signed as it must be is shown as such, not decoded.

Begin with `admin.py`; then `job_pages.py`.
"""
