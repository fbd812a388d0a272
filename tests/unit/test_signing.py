"""Signatures: who has no key can neither make up a text nor change one, and keys can be rotated."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inconcert import InvalidPayload
from inconcert._rules.signing import KeyRing, read_signing_keys
from tests.support.each import each

OLD, NEW = "old secret of 16+", "new secret of 16+"
TEXT = b'{"name":"t","args":[17]}'
old, new = KeyRing("shop", {"old": OLD}), KeyRing("shop", {"new": NEW})
both = KeyRing("shop", {"new": NEW, "old": OLD})
none = KeyRing("shop")


@given(st.text(st.characters(exclude_categories=["Cs"])), st.binary())
def test_signed_text_is_what_was_signed(job_id: str, text: bytes) -> None:
    """Any text of any job, empty ones too."""
    assert old.verify("job", job_id, old.sign("job", job_id, text)) == text


@given(st.data())
def test_changed_text_is_refused(data: st.DataObject) -> None:
    """At whatever place one byte is changed, left out or put in: header, key id, signature or text."""
    signed = old.sign("job", "a.1", TEXT)
    place = data.draw(st.integers(0, len(signed) - 1))
    byte = data.draw(st.binary(max_size=2).filter(lambda new: new != signed[place : place + 1]))
    with pytest.raises(InvalidPayload, match="not read"):
        old.verify("job", "a.1", signed[:place] + byte + signed[place + 1 :])


@each("length", range(len(old.sign("job", "a.1", TEXT))))
def test_cut_text_is_refused(length: int) -> None:
    """Wherever it is cut, also before its first byte."""
    with pytest.raises(InvalidPayload, match="not read"):
        old.verify("job", "a.1", old.sign("job", "a.1", TEXT)[:length])


def test_text_of_another_job_is_refused() -> None:
    """Also if a part of the text is passed off as a part of the id."""
    with pytest.raises(InvalidPayload, match="for its id"):
        old.verify("job", "a.2", old.sign("job", "a.1", TEXT))
    with pytest.raises(InvalidPayload, match="for its id"):
        old.verify("job", "a.1 x", old.sign("job", "a.1", b"x " + TEXT).replace(b" x ", b" "))


def test_text_is_refused_as_anything_but_what_it_was_signed_as() -> None:
    """Neither as another thing nor in another namespace, whatever the parts look like when they are joined."""
    signed = old.sign("job", "a.1", TEXT)
    with pytest.raises(InvalidPayload, match="the item was not signed with key 'old' for its id in this namespace"):
        old.verify("item", "a.1", signed)
    with pytest.raises(InvalidPayload, match="the job was not signed"):
        KeyRing("staging", {"old": OLD}).verify("job", "a.1", signed)
    with pytest.raises(InvalidPayload, match="was not signed"):
        old.verify("job 3 a.1", "a.1", old.sign("job", "a.1 3 a.1", TEXT))


def test_text_signed_with_another_secret_is_refused() -> None:
    """The id of the key alone opens nothing."""
    with pytest.raises(InvalidPayload, match="was not signed with key 'old'"):
        KeyRing("shop", {"old": NEW}).verify("job", "a.1", old.sign("job", "a.1", TEXT))


def test_text_passed_off_as_that_of_another_key_is_refused() -> None:
    """The id of the key is signed, too."""
    twins = KeyRing("shop", {"one": OLD, "two": OLD})
    with pytest.raises(InvalidPayload, match="'two'"):
        twins.verify("job", "a.1", twins.sign("job", "a.1", TEXT).replace(b"one", b"two"))


def test_unknown_key_is_named() -> None:
    """And those that are there; no secret is."""
    with pytest.raises(InvalidPayload, match=r"'new'.*only old") as refused:
        old.verify("job", "a.1", new.sign("job", "a.1", TEXT))
    assert OLD not in str(refused.value)


def test_unsigned_text_is_refused_where_there_are_keys() -> None:
    """However it looks."""
    for text in (TEXT, b"", b"hmac1 ", b"hmac2 old " + b"0" * 64 + b" " + TEXT):
        with pytest.raises(InvalidPayload, match="not signed"):
            old.verify("job", "a.1", text)


def test_first_key_signs_and_all_verify() -> None:
    """So a new key is added behind the old, then put in front of it, and then the old one is taken away."""
    behind = KeyRing("shop", {"old": OLD, "new": NEW})
    assert behind.sign("job", "a.1", TEXT) == old.sign("job", "a.1", TEXT)
    assert both.sign("job", "a.1", TEXT) == new.sign("job", "a.1", TEXT)
    for signer, reader in ((old, behind), (behind, old), (behind, both), (both, behind), (both, new), (new, both)):
        assert reader.verify("job", "a.1", signer.sign("job", "a.1", TEXT)) == TEXT


def test_without_keys_nothing_is_signed_or_verified() -> None:
    """A signed text is read, so that those who enqueue may begin to sign first."""
    assert none.sign("job", "a.1", TEXT) == TEXT
    assert none.verify("job", "a.1", TEXT) == TEXT
    assert none.verify("job", "a.2", old.sign("job", "a.1", TEXT)) == TEXT


def test_unsigned_text_may_be_accepted_for_a_time() -> None:
    """One that is signed must still be signed well."""
    lenient = KeyRing("shop", {"old": OLD}, accept_unsigned=True)
    assert lenient.verify("job", "a.1", TEXT) == TEXT
    assert lenient.sign("job", "a.1", TEXT) == old.sign("job", "a.1", TEXT)
    for signed in (new.sign("job", "a.1", TEXT), old.sign("job", "a.2", TEXT), old.sign("job", "a.1", TEXT) + b" "):
        with pytest.raises(InvalidPayload):
            lenient.verify("job", "a.1", signed)


def test_secret_may_be_text_or_bytes() -> None:
    """The text is that in UTF-8."""
    assert KeyRing("shop", {"old": OLD.encode()}).sign("job", "a.1", TEXT) == old.sign("job", "a.1", TEXT)


def test_signature_stays_as_it_is() -> None:
    """It is read by other releases: what was signed with this one must stay readable."""
    signed = b"hmac1 old 14943f25d5bea06fc2cde279993c9a8ac9b5e90d9478dcc4cf330c3bc1bebc97 " + TEXT
    assert old.sign("job", "a.1", TEXT) == signed


@pytest.mark.parametrize(
    "keys",
    [{}, {"": OLD}, {"a b": OLD}, {"ä": OLD}, {"x" * 65: OLD}, {"old": "x" * 15}, {"old": b""}, [("old", OLD)], "old",
     {1: OLD}],
    ids=range(10),
)  # fmt: skip
def test_bad_keys_are_refused(keys: object) -> None:
    """None at all, too: then somebody has lost theirs."""
    with pytest.raises(ValueError, match="key"):
        KeyRing("shop", keys)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_secret_that_is_no_text_is_refused() -> None:
    """Such as the None of a variable that is not set."""
    with pytest.raises(TypeError, match="NoneType"):
        KeyRing("shop", {"old": None})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]


def test_accepting_unsigned_texts_without_keys_is_refused() -> None:
    """It would look as if something were signed."""
    with pytest.raises(ValueError, match="signing_keys"):
        KeyRing("shop", accept_unsigned=True)


def test_secrets_are_not_shown() -> None:
    """Neither where a ring is shown, nor in errors."""
    assert repr(both) == "<KeyRing new, old>"
    with pytest.raises(ValueError, match="at least 16") as refused:
        KeyRing("shop", {"old": "short secret"})
    assert "short secret" not in str(refused.value)


def test_keys_are_read_from_json_in_their_order() -> None:
    """The first one signs."""
    assert list(read_signing_keys('{"new": "n", "old": "o"}').items()) == [("new", "n"), ("old", "o")]


@pytest.mark.parametrize(
    "text", ["", "a secret of 16 bytes", '"hush"', '["hush"]', '{"a": 1}', '{"a": null}', "{'a': 'b'}"]
)
def test_keys_that_are_no_json_object_are_refused_unseen(text: str) -> None:
    """Without showing what was there."""
    with pytest.raises(ValueError, match="JSON object") as refused:
        read_signing_keys(text)
    assert not text or text not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None
