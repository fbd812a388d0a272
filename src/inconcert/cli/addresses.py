"""Addresses at which a worker listens, read from its options."""


def address_in(option: str, text: str, *, lowest_port: int = 1) -> tuple[str, int]:
    """The host and port in `127.0.0.1:8081`, `[::1]:8081`, or `:8081`, which is any address of the machine.

    Where port 0 is allowed, it stands for any that is free.

    Raises:
        ValueError: It is neither of these.
    """
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    if not colon or not port.isdecimal() or not lowest_port <= int(port) < 2**16:
        raise ValueError(f"the address of {option} is {text!r}; give HOST:PORT, for example 127.0.0.1:8081")
    return host or "0.0.0.0", int(port)  # noqa: S104 - asked for
