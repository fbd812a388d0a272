"""Jobs as an operator sees them: pages, counts, dead letters, and what may be done to them.

Nothing here is on the path of a job that runs.  Begin with `admin.py`, the front; then `job_pages.py`, which walks over
the ids of a queue in pages.
"""
