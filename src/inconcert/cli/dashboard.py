"""`inconcert dashboard`: the dashboard of one namespace, for the person at this machine."""

from importlib.util import find_spec
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from inconcert.cli.ends import refuse
from inconcert.cli.logs import log_to_stderr
from inconcert.cli.output import say
from inconcert.cli.server import Namespace, Url, ask
from inconcert.coordinator import Coordinator

if TYPE_CHECKING:
    from starlette.requests import Request

    from inconcert.dashboard import Permission

_NEEDED = ("jinja2", "starlette", "uvicorn")


def dashboard(
    *,
    url: Url = None,
    namespace: Namespace = None,
    host: Annotated[str, typer.Option(help="Where to listen: an address of this machine alone.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for any that is free.")] = 8089,
    queue: Annotated[
        list[str] | None, typer.Option(help="Show this queue, too, although it never had a job.", show_default=False)
    ] = None,
    actions: Annotated[
        bool, typer.Option("--actions", help="Let you pause, drain, cancel, replay, purge and release by force.")
    ] = False,
) -> None:
    """Look at a namespace in a browser on this machine; it is read-only without --actions."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        refuse(f"the dashboard needs {', '.join(missing)}; run  pip install 'inconcert[dashboard]'")
    if not _is_loopback(host):
        refuse(f"{host!r} is not a loopback address, and nothing here checks who asks; mount Dashboard with allow=")
    log_to_stderr()
    ask(url, namespace, lambda concert: _serve(concert, host, port, queue or [], actions=actions))


async def _serve(concert: Coordinator, host: str, port: int, queues: list[str], *, actions: bool) -> None:
    """Serve until a signal comes."""
    import uvicorn  # noqa: PLC0415 - only where the extra is installed

    from inconcert.dashboard import Dashboard, Permission  # noqa: PLC0415 - likewise

    def allow(request: "Request", permission: "Permission") -> str | None:
        is_ours = _is_loopback(urlsplit(f"//{request.headers.get('host', '')}").hostname or "")
        return "local" if is_ours and (actions or permission is Permission.VIEW) else None

    app = Dashboard(concert, allow=allow, queues=queues)
    config = uvicorn.Config(
        app, host, port, log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    socket = config.bind_socket()
    socket.listen()  # from now on a browser may come: it waits until it is answered
    name = f"[{host}]" if ":" in host else host
    say(f"http://{name}:{socket.getsockname()[1]}/  (Ctrl-C ends it)")
    with socket:
        await server.serve([socket])


def _is_loopback(host: str) -> bool:
    """True if only this machine is reached by it; a page elsewhere may name its own host for our address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
