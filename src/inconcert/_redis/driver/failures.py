"""Why a connection could not be made, in words that show what to change."""

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path

import redis.asyncio.connection
import redis.connection
import redis.exceptions

from inconcert.errors import Unavailable

Connection = redis.asyncio.connection.AbstractConnection | redis.connection.AbstractConnection

_ENDED = (ConnectionResetError, BrokenPipeError)
_REFUSALS = (redis.exceptions.AuthenticationError, redis.exceptions.ResponseError)
_NO_PASSWORD = ("Authentication required", "HELLO must be called with the client already authenticated")


def cannot_connect(error: Exception, connection: Connection, *, timeout: float) -> Unavailable:
    """The error for what the driver raised, or let through (AttributeError), while connecting or logging in."""
    return Unavailable(_why(error, connection, timeout))


def _why(error: Exception, connection: Connection, timeout: float) -> str:
    refusals = [cause for cause in _causes(error) if isinstance(cause, _REFUSALS)]
    error = refusals[0] if refusals else error  # on a unix socket the driver wraps it in another
    is_tls = isinstance(connection, redis.asyncio.connection.SSLConnection | redis.connection.SSLConnection)
    text = str(error).rstrip(".")
    match error:
        case TimeoutError() | redis.exceptions.TimeoutError():
            hint = "; if it does not speak TLS on this port, write redis:// instead of rediss://" if is_tls else ""
            return f"the server did not answer within {timeout:g} s{hint}"
        case _ if refusals:
            return f"the server refused the connection: {text}{_remedy(error)}"
        case _ if missing := [path for path in _files(connection) if not Path(path).exists()]:
            return f"the files for TLS cannot be read: {', '.join(missing)} not found"
        case _:
            return f"the server could not be reached: {text}{_hint(error, is_tls=is_tls)}"


def _remedy(error: Exception) -> str:
    if isinstance(error, redis.exceptions.NoPermissionError):
        return "; give the user this right with ACL SETUSER"
    if not isinstance(error, redis.exceptions.AuthenticationError):
        return ""
    if str(error).startswith(_NO_PASSWORD):
        return "; it requires a password: write redis://user:password@host:6379/0"
    return "; check the user name and the password"


def _hint(error: Exception, *, is_tls: bool) -> str:
    causes = list(_causes(error))
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        return ""
    alerts = [cause for cause in causes if isinstance(cause, ssl.SSLError) and "ALERT" in (cause.reason or "")]
    was_ended = "closed" in str(error) or any(isinstance(cause, _ENDED) for cause in causes)
    if alerts or (is_tls and was_ended):  # what was sent before the alert came may turn it into a reset
        return "; if it demands a certificate of clients, give one with ssl_certfile= and ssl_keyfile="
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return "; if it does not speak TLS on this port, write redis:// instead of rediss://"
    if was_ended and not is_tls:
        return "; if it expects TLS on this port, write rediss:// instead of redis://"
    return ""


def _files(connection: Connection) -> Iterator[str]:
    context = getattr(connection, "ssl_context", connection)  # the driver's synchronous half has none
    for name in "ca_certs", "ca_path", "certfile", "keyfile":
        path = getattr(context, name, None)
        if path:
            yield path


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def in_brief(error: Exception) -> Exception:
    """The same error; if it is one of the network, without the lines of the driver that it came through."""
    causes = list(_causes(error))
    if all(isinstance(each, OSError | redis.exceptions.RedisError | asyncio.CancelledError) for each in causes):
        error.__cause__ = error.__context__ = None
        error.__traceback__ = None
    return error
