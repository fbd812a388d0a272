"""Jobs in a worker: claimed, run, renewed, ended.

A consumer claims what there is room for, a worker runs each job in a task of its own, and a lease tells the server how
it ended.  A job whose worker dies is claimed again when the lease has run out, so no job is lost; the number of the
attempt is checked at each end, so no end counts twice.

Begin with `worker.py`; then `consumer.py`, where claims come from, `job_state.py`, what a body sees of its job, and
`ends.py`, what is told to the server.
"""
