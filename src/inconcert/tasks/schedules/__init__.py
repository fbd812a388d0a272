"""Jobs by the clock: cron and intervals, declared in code or stored on the server.

Both kinds are followed by one mechanism, `schedule_follower.py`: a worker sleeps until the next due instant, and each
instant gives one job, because its id is made of the schedule and the instant.

Begin with `timetable.py`, which computes instants; then `schedule_follower.py`.
"""
