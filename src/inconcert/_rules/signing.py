"""Signatures on what is stored of a job or an item, so that nobody without a key can make one up or change one.

A signed text is `hmac1 KEY-ID HEX-DIGITS TEXT`: the HMAC-SHA256 of the text and of all that gives it its meaning: the
id of the key, the namespace, what it is, and its id.
"""

import hmac
import re
from collections.abc import Mapping

import msgspec

from inconcert.errors import InvalidPayload

__all__ = ["KeyRing", "SigningKeys", "read_signing_keys"]

SigningKeys = Mapping[str, str | bytes]

_SHORTEST = 16  # bytes of a secret: 128 bits, if they are random
_KEY_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_HEADER = re.compile(rb"hmac1 ([A-Za-z0-9._-]{1,64}) ([0-9a-f]{64}) ")


class KeyRing:
    """The keys that the jobs and items of a namespace are signed with, and verified.

    Args:
        namespace: Whose texts these are; what was signed for another namespace is refused.
        keys: Key id -> secret. The first signs, all verify. None: nothing is signed, and a signature is not looked at.
        accept_unsigned: Whether a text without signature passes although there are keys: while signing is introduced.

    Raises:
        TypeError: A secret is neither str nor bytes.
        ValueError: There is no key, a secret is shorter than 16 bytes, or an id is not 1 to 64 letters, digits, dots,
            hyphens and underscores; or there are no keys, and `accept_unsigned` is set.
    """

    def __init__(self, namespace: str, keys: SigningKeys | None = None, *, accept_unsigned: bool = False) -> None:
        self._secrets: dict[str, bytes] = {}  # first, for the repr of one that is refused
        if keys is None and accept_unsigned:
            raise ValueError("accept_unsigned is set without signing_keys; give the keys, too, or neither")
        self._namespace = namespace.encode()
        if keys is not None:
            self._secrets = _checked(keys)
        self._signing_id = next(iter(self._secrets), None)
        self._accept_unsigned = accept_unsigned

    def __repr__(self) -> str:
        return f"<KeyRing {', '.join(self._secrets) or 'without keys'}>"  # never a secret

    def sign(self, what: str, id_: str, text: bytes) -> bytes:
        """The text with a signature; without keys, as it is.

        Args:
            what: What the text is, such as `job`.
            id_: Which one.
            text: What is to be signed.
        """
        if self._signing_id is None:
            return text
        signature = self._signature(self._signing_id, what, id_, text)
        return b"hmac1 %s %s %s" % (self._signing_id.encode(), signature, text)

    def verify(self, what: str, id_: str, text: bytes) -> bytes:
        """The text without its signature.

        Args:
            what: As it was signed.
            id_: Likewise.
            text: With its signature.

        Raises:
            InvalidPayload: There are keys, and it was not signed with one of them, in this namespace, as what it is,
                for this id, as it is.
        """
        header = _HEADER.match(text)
        if header is None:
            if self._secrets and not self._accept_unsigned:
                raise InvalidPayload(f"the {what} is not signed, as signing_keys demand; it was not read")
            return text
        key_id, signature, inner = header[1].decode(), header[2], text[header.end() :]
        if not self._secrets:
            return inner
        if key_id not in self._secrets:
            raise InvalidPayload(
                f"the {what} is signed with key {key_id!r}, and signing_keys has only "
                f"{', '.join(self._secrets)}; it was not read"
            )
        if not hmac.compare_digest(signature, self._signature(key_id, what, id_, inner)):
            raise InvalidPayload(
                f"the {what} was not signed with key {key_id!r} for its id in this namespace, or was changed since; "
                "it was not read"
            )
        return inner

    def _signature(self, key_id: str, what: str, id_: str, text: bytes) -> bytes:
        parts = (key_id.encode(), self._namespace, what.encode(), id_.encode())
        # Each with its length, so that no part can be taken for a part of the next.
        signed = b"inconcert hmac1 %s %s" % (b" ".join(b"%d %s" % (len(part), part) for part in parts), text)
        return hmac.digest(self._secrets[key_id], signed, "sha256").hex().encode()


def read_signing_keys(text: str) -> dict[str, str]:
    """The keys of a ring, written as a JSON object: `{"2026-11": "secret"}`.

    Raises:
        ValueError: It is none.
    """
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except msgspec.MsgspecError:
        pass  # its message might show a part of a secret
    raise ValueError(
        'the signing keys are no JSON object; write them as {"key id": "secret", ...}, the one that signs first'
    )


def _checked(keys: SigningKeys) -> dict[str, bytes]:
    if not isinstance(keys, Mapping) or not keys:  # pyright: ignore[reportUnnecessaryIsInstance] - users without a type checker
        raise ValueError("signing_keys must be a mapping of key ids to secrets, with one key at least; or None")
    secrets: dict[str, bytes] = {}
    for key_id, secret in keys.items():
        if not isinstance(key_id, str) or not _KEY_ID.fullmatch(key_id):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"the key id {key_id!r} must have 1 to 64 letters, digits, dots, hyphens and underscores")
        if not isinstance(secret, str | bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"the secret of signing key {key_id!r} is a {type(secret).__name__}; give a str or bytes")
        secrets[key_id] = secret.encode() if isinstance(secret, str) else secret
        if len(secrets[key_id]) < _SHORTEST:
            raise ValueError(
                f"the secret of signing key {key_id!r} has {len(secrets[key_id])} bytes; give at least {_SHORTEST}, at "
                "random, such as secrets.token_hex(32)"
            )
    return secrets
