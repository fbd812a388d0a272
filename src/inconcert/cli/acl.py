"""`inconcert acl`: the rights that a user of one namespace needs."""

import shlex
from typing import Annotated

import typer

from inconcert._redis.operate.rights import Server, least_rights, sentinel_rights
from inconcert.cli.ends import refuse
from inconcert.cli.output import say


def acl(
    *,
    namespace: Annotated[str, typer.Option(envvar="INCONCERT_NAMESPACE", help="The coordinator's.")] = "inconcert",
    user: Annotated[str | None, typer.Option(help="The user's name.", show_default="the namespace")] = None,
    server: Annotated[Server, typer.Option(help="What checks the rights: this version or later.")] = Server.REDIS_7,
    database: Annotated[
        int | None, typer.Option(min=0, help="The only one that the user may select: Valkey 9.1.", show_default="any")
    ] = None,
    cluster: Annotated[bool, typer.Option("--cluster", help="The server is a cluster.")] = False,
    failover_guard: Annotated[
        bool, typer.Option("--failover-guard", help="The coordinator has failover_guard=.")
    ] = False,
    replicas: Annotated[bool, typer.Option("--replicas", help="The coordinator has replicas=.")] = False,
    inspect: Annotated[
        bool,
        typer.Option("--inspect", help="For operators: the user may ask who holds what."),
    ] = False,
    sentinel: Annotated[
        bool, typer.Option("--sentinel", help="Instead, the rights at a Sentinel, for its login.")
    ] = False,
) -> None:
    """Print the least rights of a user for one namespace, as a command for redis-cli; they leave its passwords."""
    try:
        rules = (
            sentinel_rights(server)
            if sentinel
            else least_rights(
                namespace,
                server=server,
                database=database,
                cluster=cluster,
                failover_guard=failover_guard,
                replicas=replicas,
                inspect=inspect,
            )
        )
    except ValueError as error:
        refuse(str(error))
    say(shlex.join(["ACL", "SETUSER", user or namespace, "on", *rules]))
