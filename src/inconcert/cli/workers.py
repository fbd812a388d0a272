"""`inconcert workers`: who runs jobs, and what."""

from inconcert.cli.server import Json, Namespace, Url, ask
from inconcert.cli.tables import ago, print_json, print_table


def workers(*, url: Url = None, namespace: Namespace = None, as_json: Json = False) -> None:
    """The workers of all processes: where they are, what they serve, and what they run."""
    found = ask(url, namespace, lambda concert: concert.tasks.workers())
    if as_json:
        print_json(found)
        return
    print_table(
        ("worker", "host", "pid", "queues", "running", "places", "oldest job", "heard", "alive"),
        (
            (
                worker.id,
                worker.host,
                None if worker.pid is None else str(worker.pid),
                ", ".join(worker.queues),
                len(worker.running),
                worker.capacity,
                f"{worker.running[0].task}, {ago(worker.running[0].claimed_at)}" if worker.running else None,
                ago(worker.heard_at),
                worker.is_alive,
            )
            for worker in found
        ),
        empty="no worker",
    )
