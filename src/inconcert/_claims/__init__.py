"""At-least-once delivery, for jobs and for the items of queues: claim, heartbeat, ack, nack, and recovery.

What a job or an item means belongs in `tasks` or `queues`: arguments, results, and what a user sees of a claim.

Begin with `worker_lease.py`, under which one worker holds its claims, then `claimed.py`, which is one of them.
"""
