"""Work handed from one process to another: tasks, their jobs, and the workers that run them.

The rooms, the lowest first: `records` (a job as it is stored), `durable` (steps), `following` (a job from outside),
`sending`, `schedules`, `running` (workers), `operating`, and `front`, through which a coordinator comes in.
"""
