"""Signatures on stored jobs and items, so that nobody without a key can forge or change one.

A signed text is `hmac1 KEY-ID HEX-DIGITS TEXT`: the HMAC-SHA256 of the text and of its context: the key id, the
namespace, the kind of text, and its id.
"""

import hmac
import re
from collections.abc import Mapping

import msgspec

from inconcert.errors import UnreadablePayload

SigningKeys = Mapping[str, str | bytes]

_SHORTEST = 16  # bytes of a secret: 128 bits, if they are random
_KEY_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_HEADER = re.compile(rb"hmac1 ([A-Za-z0-9._-]{1,64}) ([0-9a-f]{64}) ")


class KeyRing:
    """The keys that sign and verify the jobs and items of a namespace.

    Args:
        namespace: A text signed for another namespace is refused.
        keys: Key id -> secret. The first signs, all verify. None: nothing is signed, and signatures are not checked.
        accept_unsigned: Whether unsigned texts pass although there are keys: while signing is being introduced.

    Attributes:
        signs: Whether texts are signed.
        are_demanded: Whether a text that is not signed is refused.

    Raises:
        TypeError: A secret is neither str nor bytes.
        ValueError: There is no key, a secret is shorter than 16 bytes, or an id is not 1 to 64 letters, digits, dots,
            hyphens and underscores; or there are no keys, and `accept_unsigned` is set.
    """

    def __init__(self, namespace: str, keys: SigningKeys | None = None, *, accept_unsigned: bool = False) -> None:
        self._secrets: dict[str, bytes] = {}  # first, so that repr works if the keys are refused
        if keys is None and accept_unsigned:
            raise ValueError("accept_unsigned is set without signing_keys; give the keys, too, or neither")
        self._namespace = namespace.encode()
        if keys is not None:
            self._secrets = _checked(keys)
        self._signing_id = next(iter(self._secrets), None)
        self.signs = self._signing_id is not None
        self.are_demanded = keys is not None and not accept_unsigned

    def __repr__(self) -> str:
        return f"<KeyRing {', '.join(self._secrets) or 'without keys'}>"  # never a secret

    def sign(self, what: str, id_: str, text: bytes) -> bytes:
        """The text with a signature; unchanged if there are no keys.

        Args:
            what: The kind of text, such as `job`.
            id_: The id of the job or item.
            text: The text to sign.
        """
        if self._signing_id is None:
            return text
        signature = self._signature(self._signing_id, what, id_, text)
        return b"hmac1 %s %s %s" % (self._signing_id.encode(), signature, text)

    def verify(self, what: str, id_: str, text: bytes) -> bytes:
        """The text without its signature.

        Args:
            what: The kind of text that was signed.
            id_: The id that was signed.
            text: The text with its signature.

        Raises:
            UnreadablePayload: There are keys, and none of them has signed exactly this text, with this kind and id, in
                this namespace.
        """
        header = _HEADER.match(text)
        if header is None:
            if self.are_demanded:
                raise UnreadablePayload(f"the {what} is not signed, as signing_keys demand; it was not read")
            return text
        key_id, signature, inner = header[1].decode(), header[2], text[header.end() :]
        if not self._secrets:
            return inner
        if key_id not in self._secrets:
            raise UnreadablePayload(
                f"the {what} is signed with key {key_id!r}, and signing_keys has only "
                f"{', '.join(self._secrets)}; it was not read"
            )
        if not hmac.compare_digest(signature, self._signature(key_id, what, id_, inner)):
            raise UnreadablePayload(
                f"the {what} was not signed with key {key_id!r} for its id in this namespace, or was changed since; "
                "it was not read"
            )
        return inner

    def _signature(self, key_id: str, what: str, id_: str, text: bytes) -> bytes:
        parts = (key_id.encode(), self._namespace, what.encode(), id_.encode())
        # Each with its length, so that no byte can move from one part to the next.
        signed = b"inconcert hmac1 %s %s" % (b" ".join(b"%d %s" % (len(part), part) for part in parts), text)
        return hmac.digest(self._secrets[key_id], signed, "sha256").hex().encode()


def read_signing_keys(text: str) -> dict[str, str]:
    """Read the keys of a ring from a JSON object: `{"2026-11": "secret"}`.

    Raises:
        ValueError: `text` is not a JSON object.
    """
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except msgspec.MsgspecError:
        pass  # its message might reveal part of a secret
    raise ValueError(
        'the signing keys are not a JSON object; write them as {"key id": "secret", ...}, the one that signs first'
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
