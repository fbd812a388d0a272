"""The answers of `--health`: one worker process gives its own; for several, their parent asks each."""

import http.client
import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from inconcert.tasks.running.health_server import Answer, HealthServer

CHILDREN = "127.0.0.1"  # where the processes of one parent answer, each at a port of its own after the parent's
_ANSWERS_WITHIN = 0.7  # seconds; a kubelet waits for 1 s by default


def answer_for_all(host: str, port: int, count: int) -> HealthServer:
    """The probes of a parent: it succeeds if all its processes do.

    A process that does not accept connections is being started, which is the parent's task: it is alive, and not ready.
    """
    ports = [port + number for number in range(1, count + 1)]
    probes = {path: partial(_ask_all, ports, path, if_absent=path == "/livez") for path in ("/livez", "/readyz")}
    return HealthServer(host, port, probes)


def _ask_all(ports: list[int], path: str, *, if_absent: bool) -> Answer:
    with ThreadPoolExecutor(len(ports)) as pool:
        answers = list(pool.map(partial(_ask, path, if_absent=if_absent), ports))
    return all(is_ok for is_ok, _ in answers), {"processes": [told for _, told in answers]}


def _ask(path: str, port: int, *, if_absent: bool) -> tuple[bool, object]:
    connection = http.client.HTTPConnection(CHILDREN, port, timeout=_ANSWERS_WITHIN)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status == http.client.OK, json.loads(response.read())
    except ConnectionRefusedError:
        return if_absent, {"is_ok": if_absent, "state": "starting", "reason": "the process is not up"}
    except (OSError, http.client.HTTPException, ValueError) as error:
        return False, {"is_ok": False, "state": "blocked", "reason": f"the process does not answer: {error!r}"}
    finally:
        connection.close()
