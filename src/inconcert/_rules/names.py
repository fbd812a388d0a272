"""Rules for names of locks, queues, chats and namespaces, for ids of jobs and items, and digests of names."""

import hashlib
import re

from inconcert.errors import InvalidName

_LONGEST = 512  # bytes
_OWN_ID = re.compile(r"[A-Za-z0-9_:+=-]+")  # no '.' and no '@', of which each generated id has one
_NAMESPACE = re.compile(r"[^\s:{}]{1,64}")  # no braces: they delimit the hash tag; no colon: it ends the namespace


def check_name(kind: str, name: str) -> str:
    """Return `name`, as a plain string, if it can name a `kind`: 1 to 512 bytes in UTF-8, of any characters.

    Raises:
        InvalidName: `name` is not a string, is empty or too long, or has lone surrogates.
    """
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] - users without a type checker
        raise InvalidName(f"a name of a {kind} must be a string, and {name!r} is not; {_instead_of(name)}")
    if not name:
        raise InvalidName(f"a name of a {kind} must not be empty; give it at least one character")
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise InvalidName(f"the name {name!r} of a {kind} is not valid Unicode; remove the lone surrogates") from error
    if size > _LONGEST:
        raise InvalidName(
            f"the name {name[:40]!r}... of a {kind} has {size} bytes; use at most {_LONGEST}, or a hash of it"
        )
    return str.__str__(name)  # of a member of an enum its value, which formatting would not give


def _instead_of(thing: object) -> str:
    """Advice for something that is not a string: `str` of our own objects, such as `<Task 'a'>`, names nothing."""
    if not type(thing).__module__.startswith("inconcert"):
        return "pass it decoded" if isinstance(thing, bytes) else "pass str(...) of it"
    for attribute in ("name", "id"):
        if isinstance(getattr(thing, attribute, None), str):
            return f"pass its .{attribute}"
    return "pass the name that was given to it"


def check_namespace(namespace: str) -> str:
    """Return `namespace` if it can start every key: 1 to 64 characters without space, colon or braces.

    Raises:
        InvalidName: `namespace` is anything else.
    """
    if not isinstance(namespace, str) or not _NAMESPACE.fullmatch(namespace):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidName(f"the namespace {namespace!r} must have 1 to 64 characters without space, ':', '{{' or '}}'")
    return check_name("namespace", namespace)


def check_job_id(job_id: str) -> str:
    """Return `job_id` if a job can have it.

    Raises:
        InvalidName: It is not a string, is empty, or has spaces or characters that are not ASCII.
    """
    if not _is_one_word(job_id):
        raise InvalidName(f"invalid job id {job_id!r}; pass the string from `Job.id`")
    return job_id


def check_own_id(job_id: str) -> str:
    """Return `job_id` if the caller who enqueues a job can choose it.

    Raises:
        InvalidName: It is not a string of 1 to 512 letters, digits, `_`, `-`, `:`, `+` and `=` of ASCII.
    """
    if not isinstance(job_id, str) or len(job_id) > _LONGEST or not _OWN_ID.fullmatch(job_id):  # pyright: ignore[reportUnnecessaryIsInstance] - users without a type checker
        raise InvalidName(
            f"invalid id {job_id!r} of a job; give 1 to {_LONGEST} letters of ASCII, digits, '_', '-', ':', '+' and "
            "'=', or a hash of yours"
        )
    return str.__str__(job_id)


def check_item_id(queue: str, item_id: str) -> str:
    """Return `item_id` if an item of this queue can be given it.

    Raises:
        InvalidName: It is not a string of 1 to 512 printable ASCII characters without space and `#`.
    """
    if not _is_one_word(item_id) or len(item_id) > _LONGEST or "#" in item_id:
        raise InvalidName(
            f"invalid id {item_id!r} of an item of queue {queue!r}; give 1 to {_LONGEST} printable ASCII characters"
            " without space and '#', or a hash of yours"
        )
    return item_id


def digest(*names: str) -> str:
    """These names as scripts know them: short, and of the same length whatever they are."""
    return hashlib.blake2b(repr(names).encode(), digest_size=10).hexdigest()


def _is_one_word(text: object) -> bool:
    return isinstance(text, str) and text.isascii() and text.isprintable() and text != "" and " " not in text
