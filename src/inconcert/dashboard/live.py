"""The texts of a page that change while it is looked at; a browser is sent those that it shows, and that did.

A key begins with the row that the text is in, if any: one queue, limit or worker, whose name it does not show.
"""

import hashlib
from collections.abc import Collection, Mapping
from functools import lru_cache

from inconcert.dashboard import charts
from inconcert.dashboard.formats import DASH, ago, count, duration, rate, size
from inconcert.dashboard.poll import Seen


@lru_cache(maxsize=4096)
def reference(kind: str, name: str) -> str:
    """Stands for a queue, a limit, a worker or a reason in a page, where its text may be secret."""
    return kind + hashlib.sha256(name.encode()).hexdigest()[:16]


def texts(seen: Seen, rows: Collection[str]) -> Mapping[str, str]:
    """The changing texts by their keys; of queues, limits and workers only in these rows.

    The `shape` changes when queues or workers come or go.
    """
    queues = seen.stats.queues
    ages = [queue.oldest_age for queue in queues.values() if queue.oldest_age is not None]
    found = {
        "ready": count(sum(queue.ready for queue in queues.values())),
        "delayed": count(sum(queue.delayed for queue in queues.values())),
        "waiting": count(sum(queue.waiting for queue in queues.values())),
        "running": count(sum(queue.running for queue in queues.values())),
        "finished": count(sum(queue.finished for queue in queues.values())),
        "dead": count(seen.stats.dead),
        "workers": count(sum(worker.is_alive for worker in seen.workers)),
        "oldest": duration(max(ages, default=None)),
        "rate": rate(seen.rate),
        "backlog": count(seen.history[-1].backlog),
        "chart.backlog": charts.points([point.backlog for point in seen.history]),
        "chart.rate": charts.points(seen.rates),
    }
    if seen.server is not None:
        found |= {"memory": size(seen.server.used), "clients": count(seen.server.clients)}
    for name, queue in queues.items():
        key = reference("q", name)
        if key not in rows:
            continue
        found |= {
            f"{key}.ready": count(queue.ready),
            f"{key}.delayed": count(queue.delayed),
            f"{key}.held": count(queue.held_back),
            f"{key}.waiting": count(queue.waiting),
            f"{key}.running": count(queue.running),
            f"{key}.finished": count(queue.finished),
            f"{key}.oldest": duration(queue.oldest_age),
            f"{key}.consumers": count(queue.consumers),
        }
    found |= {
        f"{reference('l', task)}.used": f"{count(limit.in_use)} of {count(limit.places)}"
        for task, limit in seen.stats.limits.items()
        if reference("l", task) in rows
    }
    for worker in seen.workers:
        key = reference("w", worker.id)
        if key not in rows:
            continue
        found |= {
            f"{key}.running": count(len(worker.running)),
            f"{key}.heard": ago(worker.heard_at),
            f"{key}.oldest": ago(worker.running[0].claimed_at) if worker.running else DASH,
        }
    states = [(name, queue.is_paused, queue.held_back > 0) for name, queue in queues.items()]
    shape = repr((states, seen.stats.unserved, [(worker.id, worker.is_alive) for worker in seen.workers]))
    return found | {"shape": hashlib.sha256(shape.encode()).hexdigest()[:16]}
