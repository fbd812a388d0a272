"""The pure decisions: waits, durations, names and payloads."""

import math
import re
from datetime import timedelta
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inconcert import Coordinator, InvalidName, InvalidPayload
from inconcert._core.permit_state import PermitKeys
from inconcert._redis.protocol.keys import Keyspace, channel_subject
from inconcert._redis.protocol.slots import slot_of
from inconcert._rules.backoff import backoff, retry_delay
from inconcert._rules.durations import delay, milliseconds, timeout, ttl
from inconcert._rules.limits import whole
from inconcert._rules.names import check_name
from inconcert._rules.payloads import JSON, decode, encode
from inconcert._rules.urls import parse_url
from inconcert.tasks.records.limits import TaskLimits
from inconcert.tasks.records.store import JobKeys

FRACTION = st.floats(0, 1, exclude_max=True)
VALUES: st.SearchStrategy[JSON] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
NAMES = st.text(min_size=1, max_size=100)


@pytest.mark.parametrize(
    ("value", "limits", "message"),
    [
        (0, {}, "limit is 0; give a whole number from 1"),
        (-1, {"least": 0}, "limit is -1; give a whole number from 0"),
        (0, {"most": 1_000}, "limit is 0; give a whole number from 1 to 1,000"),
        (1_001, {"most": 1_000}, "limit is 1001; give a whole number from 1 to 1,000"),
        (True, {}, "limit is True; give a whole number from 1"),
        (1.0, {}, "limit is 1.0; give a whole number from 1"),
        (None, {}, "limit is None; give a whole number from 1"),
    ],
)
def test_error_of_a_count_names_the_range(value: Any, limits: dict[str, int], message: str) -> None:
    """Every count that users give is checked by `whole`, so only this test has the full message."""
    with pytest.raises(ValueError, match=f"^{message}$"):
        whole("limit", value, **limits)


@pytest.mark.parametrize(("value", "limits"), [(1, {}), (2**70, {}), (0, {"least": 0}), (1_000, {"most": 1_000})])
def test_count_within_its_range_is_returned(value: int, limits: dict[str, int]) -> None:
    """Both ends of a range belong to it."""
    assert whole("limit", value, **limits) == value


@given(st.integers(1, 10_000), FRACTION)
def test_backoff_never_spins_and_never_sleeps_long(failures: int, jitter: float) -> None:
    """Each wait lies between 5 ms and 2 s."""
    assert 0.005 <= backoff(failures, jitter) <= 2.0


@given(FRACTION)
def test_retries_wait_one_two_four_seconds(jitter: float) -> None:
    """Each within 25 % of it, and up to 5 minutes."""
    for failures, seconds in ((1, 1), (2, 2), (3, 4), (9, 256), (10, 300), (10_000, 300)):
        assert retry_delay(failures, jitter) == pytest.approx(seconds, rel=0.25)


@pytest.mark.parametrize("bad", [-1, math.nan, math.inf, True, "1", None, timedelta(seconds=-1), 1e12])
def test_times_out_of_range_are_refused(bad: object) -> None:
    """Neither negative nor endless nor of another type."""
    with pytest.raises(ValueError, match="delay is"):
        delay(bad)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def test_a_ttl_is_above_zero() -> None:
    """A lease of no length would be lost before it is granted."""
    with pytest.raises(ValueError, match="ttl is 0"):
        ttl(0)
    assert ttl(timedelta(minutes=1)) == 60.0


def test_a_timeout_may_be_none_or_zero() -> None:
    """None waits for ever, 0 tries once."""
    assert timeout(None) is None
    assert timeout(0) == 0.0


@given(st.floats(0, 1e6))
def test_milliseconds_are_never_less_than_asked_for(seconds: float) -> None:
    """Rounded up, but not by an error of arithmetic."""
    assert -1e-6 <= milliseconds(seconds) / 1000 - seconds < 0.001 + 1e-6
    assert milliseconds(0.3) == 300


@given(VALUES)
def test_every_json_value_comes_back_exactly(value: JSON) -> None:
    """Large integers, any Unicode, nested and empty things."""
    assert decode(encode("a message", value)) == value


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, b"bytes", {1, 2}, {1: "key"}, object, "\ud800", [{"deep": -math.inf}], {"\ud800": 1}],
    ids=repr,
)
def test_what_json_cannot_hold_is_refused(value: object) -> None:
    """Rather than changed into something that it can."""
    with pytest.raises(InvalidPayload, match="a message"):
        encode("a message", value)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def test_endless_nesting_is_refused() -> None:
    """A list that holds itself ends in an error of ours."""
    loop: list[JSON] = []
    loop.append(loop)
    with pytest.raises(InvalidPayload):
        encode("a message", loop)


def test_large_payload_is_refused() -> None:
    """At most 1 MiB as JSON."""
    assert encode("a message", "x" * (2**20 - 2))
    with pytest.raises(InvalidPayload, match="1048577 bytes"):
        encode("a message", "x" * (2**20 - 1))


def nested(levels: int, *, wide: int = 1) -> JSON:
    """Lists in lists, each of so many that are the same."""
    value: JSON = 1
    for _ in range(levels):
        value = [value] * wide
    return value


def test_payload_is_nested_100_levels_at_most() -> None:
    """In lists and dictionaries: every reader can decode what a sender could encode, however deep its stack is."""
    for deepest, deeper in ((nested(100), nested(101)), ({"a": nested(99)}, {"a": nested(100)})):
        assert decode(encode("a message", deepest)) == deepest
        with pytest.raises(InvalidPayload, match="more than 100 levels"):
            encode("a message", deeper)


def test_payload_that_holds_itself_is_refused() -> None:
    """And one that would have very many values, before they are counted."""
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(InvalidPayload, match="more than 100 levels"):
        encode("a message", circle)
    with pytest.raises(InvalidPayload, match="more than 1048576 values"):
        encode("a message", nested(60, wide=2))


@pytest.mark.parametrize("text", [b"", b"v1.2.3", b'"\xff"', b"[" * 2000 + b"]" * 2000], ids=repr)
def test_text_that_is_no_payload_is_one_kind_of_error(text: bytes) -> None:
    """Whatever the decoder raises."""
    with pytest.raises(ValueError, match="not a JSON value, or nested too deeply"):
        decode(text)


@pytest.mark.parametrize("name", ["", "x" * 513, "é" * 257, "\ud800", 7, None, b"bytes"], ids=repr)
def test_bad_names_are_refused(name: object) -> None:
    """Empty, above 512 bytes, no valid Unicode, no string."""
    with pytest.raises(InvalidName, match="lock"):
        check_name("lock", name)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def itself(key: str | int) -> str | int:
    """The key of a job whose argument it is."""
    return key


@pytest.mark.parametrize("kind", [StrEnum("Tenant", {"ACME": "acme"}), Enum("Tenant", {"ACME": "acme"}, type=str)])
def test_member_of_an_enum_names_what_its_value_names(kind: Any) -> None:
    """However it is formatted: keys, limits and tasks have the value."""
    tenant, plain = kind("acme"), Keyspace("n")
    limits = TaskLimits(key=itself, key_limit=1)

    assert plain.of(PermitKeys, "lock", tenant) == plain.of(PermitKeys, "lock", "acme")
    assert JobKeys(plain).queue(tenant) == JobKeys(plain).queue("acme")
    assert limits.of("t", "q", (tenant,), {}) == limits.of("t", "q", ("acme",), {})


def test_key_of_an_enum_of_numbers_is_its_number() -> None:
    """As in an enum of strings; and 1 is not "1"."""

    class Tenant(IntEnum):
        ACME = 1

    limits = TaskLimits(key=itself, key_limit=1)
    keys = [Tenant.ACME, 1, "1"]

    of_enum, of_number, of_string = (limits.of("t", "q", (key,), {}) for key in keys)
    assert of_enum == of_number != of_string


@given(NAMES, NAMES)
def test_two_names_never_share_a_key(one: str, other: str) -> None:
    """Whatever braces and colons they have, and whatever the parts are."""
    keys = Keyspace("shop")
    if one != other:
        assert not {*keys.of(PermitKeys, "lock", one)} & {*keys.of(PermitKeys, "lock", other)}


@given(NAMES, st.integers(0, 15))
def test_channel_names_its_namespace_and_its_database_first(name: str, database: int) -> None:
    """So one rule of an ACL is for all of them, and those of two databases are never the same."""
    keys = Keyspace("shop", database)
    start = f"shop:{database}:"
    key = keys.of(PermitKeys, "event", name).holders
    assert keys.channel(key, "event", name) == f"{start}event:{name}"
    assert keys.channels("signal", name) == f"{start}signal:{name}"
    assert keys.inboxes(key) == f"{start}inbox:"
    assert keys.name_in("signal", keys.channel(key, "signal", name)) == name


@given(NAMES)
def test_channel_on_a_cluster_lies_in_the_slot_of_its_key(name: str) -> None:
    """Where the script runs that publishes there; and the same rule of an ACL is for it."""
    keys = Keyspace("shop", is_sharded=True)
    key = keys.of(PermitKeys, "event", name).holders
    channel = keys.channel(key, "event", name)
    assert slot_of(channel) == slot_of(key) == slot_of(keys.inboxes(key) + "session")
    assert channel.startswith("shop:{")
    assert channel_subject(channel) == ("event", name)


@given(NAMES)
def test_keys_of_one_object_share_a_slot(name: str) -> None:
    """The hash tag, from the first brace to the next closing one, is the same and not empty."""
    tags = {key[1 : key.index("}")] for key in Keyspace("shop").of(PermitKeys, "lock", name)}
    assert len(tags) == 1
    assert tags.pop().startswith("shop:lock:")


@pytest.mark.parametrize(
    "url",
    [
        "redis://localhost",
        "redis://user:p%40ss@host:6380/3?socket_timeout=2",
        "rediss://host/0?ssl_ca_certs=/etc/ca.pem&ssl_check_hostname=true",
        "unix:///run/redis.sock?db=1",
    ],
)
def test_good_urls_pass(url: str) -> None:
    """Plain, with secrets, with TLS, and by socket."""
    parts = parse_url(url)
    assert parts.url == url
    assert parts.topology == "server"
    assert "p%40ss" not in f"{parts} {parts.shown}"


@pytest.mark.parametrize("scheme", ["redis", "rediss"])
def test_schemes_of_valkey_are_those_of_redis(scheme: str) -> None:
    """The driver knows only these."""
    assert parse_url(scheme.replace("redis", "valkey") + "://u:p@h/0").url == parse_url(f"{scheme}://u:p@h/0").url


@pytest.mark.parametrize("end", ["", "/0", "/0?", "?socket_timeout=2", "?ssl_check_hostname=yes"])
def test_tls_checks_the_name_of_the_host(end: str) -> None:
    """Said to the driver, which does so by default only since its version 6."""
    query = parse_qs(urlsplit(parse_url(f"rediss://host{end}").url).query)
    assert query.pop("ssl_check_hostname") in (["true"], ["yes"])
    assert query in ({}, {"socket_timeout": ["2"]})
    assert "hostname" not in parse_url("redis://host").url


def test_url_of_sentinels_names_them_and_the_master() -> None:
    """The rest is what one server's URL says, and the Sentinels have a login of their own."""
    options = "ssl_ca_certs=/etc/ca.pem&sentinel_username=watch&sentinel_password=s%26cret&socket_timeout=2"
    parts = parse_url(f"valkeys+sentinel://user:p%40ss@h1:1,[::1],h3:26380/mymaster/3?{options}")
    assert parts.topology == "sentinel"
    assert parts.nodes == (("h1", 1), ("::1", 26379), ("h3", 26380))
    assert parts.service == "mymaster"
    assert parts.sentinel_login == ("watch", "s&cret")
    assert (
        parts.url == "rediss://user:p%40ss@h1:1/3?ssl_ca_certs=%2Fetc%2Fca.pem&socket_timeout=2&ssl_check_hostname=true"
    )
    assert parts.shown == "valkeys+sentinel://h1:1,[::1],h3:26380/mymaster/3"
    assert not re.search("p%40ss|cret", repr(parts))


def test_url_of_a_cluster_names_its_nodes() -> None:
    """Any of them leads to all others."""
    parts = parse_url("redis+cluster://user:p%40ss@h1:7001,h2?socket_timeout=2")
    assert parts.topology == "cluster"
    assert parts.nodes == (("h1", 7001), ("h2", 6379))
    assert parts.url == "redis://user:p%40ss@h1:7001/?socket_timeout=2"
    assert parts.shown == "redis+cluster://h1:7001,h2"
    assert parse_url("redis+cluster://h1:7001/0").topology == "cluster"


@pytest.mark.parametrize(
    ("url", "driver", "shown"),
    [
        ("redis://shop@h/1?{}&protocol=3", "redis://h/1?protocol=3", "redis://h/1?{}"),
        ("unix://shop@/run/socket?{}&db=2", "unix:///run/socket?db=2", "unix:///run/socket?db=2&{}"),
        ("redis+sentinel://shop@h1,h2/m/1?{}", "redis://h1/1", "redis+sentinel://h1,h2/m/1?{}"),
        ("redis+cluster://shop@h1,h2?{}", "redis://h1/", "redis+cluster://h1,h2?{}"),
    ],
)
def test_url_names_a_file_with_the_password(url: str, driver: str, shown: str) -> None:
    """Of the user that it names; the path is shown, because it gives nothing away."""
    option = "password_file=%2Frun%2Fa+%26b"
    parts = parse_url(url.format(option))
    assert (parts.password_file, parts.username) == (Path("/run/a &b"), "shop")
    assert (parts.url, parts.shown) == (driver, shown.format(option))
    assert parse_url(parts.shown).username is None


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("redis://user:secret@h?password_file=/run/secret", "leave out one"),
        ("redis://h?password_file=/run/secret&password=secret", "leave out one"),
        ("redis+cluster://user:secret@h?password_file=x", "leave out one"),
        ("redis://user@h?password_file=", "without a path"),
        ("redis+sentinel://user:secret@h1:1,h2:2", "no name of the master"),
        ("redis+sentinel://user:secret@h1:1,h2:2/0", "no name of the master"),
        ("redis+sentinel://user:secret@h1:1,h2:2/my master/0", "an invalid one"),
        ("redis+sentinel://user:secret@h1:1,h2:2/mymaster/secret", "invalid database"),
        ("redis+sentinel://user:secret@h1:1,,h2:2/mymaster", "no host"),
        ("redis+sentinel://user:secret@h1:1,h2:x/mymaster", "invalid port"),
        ("redis+sentinel://user:secret@h1:1,[::1/mymaster", "brackets"),
        ("redis+sentinel:///mymaster/0", "no host"),
        ("rediss+sentinel://h1:1/mymaster?ssl_cert_reqs=none&sentinel_password=secret", "turns off the check"),
        ("redis+cluster://user:secret@h1:1,h2:2/1", "a cluster has one only"),
        ("redis+cluster://user:secret@h1:1,h2:2?db=1", "a cluster has one only"),
        ("redis+cluster://user:secret@h1:1,h2:2?db=x", "a cluster has one only"),
        ("redis+cluster://user:secret@h1:1;h2:2", "invalid port"),
        ("redis://user:secret@h1:1,h2:2/0", "several hosts need"),
        ("redis+sentinels://user:secret@h1:1/mymaster", "must start with"),
        ("redis+://user:secret@h1:1/0", "must start with"),
        ("unix+sentinel:///user:secret@socket", "must start with"),
    ],
)
def test_bad_url_of_several_nodes_is_refused_by_what_is_wrong(url: str, why: str) -> None:
    """Without its secret, and before any connection."""
    with pytest.raises(ValueError, match=why) as caught:
        parse_url(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", [None, b"redis://host", 6379])
def test_url_that_is_no_string_is_refused(url: object) -> None:
    """Such as that of an embedded server which is not started."""
    with pytest.raises(TypeError, match="must be a string"):
        parse_url(url)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "url",
    [
        "redis:/user:secret@h:1/0",
        "localhost:6379",
        "http://user:secret@host",
        "redis://",
        "redis://user:secret@:6379",
        "redis://user:secret@host:port",
        "redis://user:secret@host:99999",
        "redis://user:secret@host/secondary",
        "unix://",
        "rediss://user:secret@host?ssl_cert_reqs=none",
        "rediss://user:secret@host?ssl_check_hostname=False",
        "redis://host/x?password=secret",
    ],
)
def test_bad_url_is_refused_without_its_secret(url: str) -> None:
    """A URL that is refused never tells its password."""
    with pytest.raises(ValueError, match="the URL") as caught:
        parse_url(url)
    assert "secret" not in str(caught.value)


SECRET = st.text("abc/?#@[]:%&= \n\\é", max_size=8).map("Zq7".__add__)
STARTS = [
    "",
    "redis+sentinel://",
    "rediss+cluster://",
    "redis+sentinel://host,",
    "redis://",
    "rediss://",
    "valkey://",
    "unix://",
    "redis:///",
    "unix:///",
    "redis:/",
    "redis:",
    "http://",
]
USERS = ["", "user", "u%40", "user@host"]
ENDS = [
    "",
    "@",
    "@host:6379/0",
    "@host:6379/mymaster/0",
    "@host,host:x/mymaster",
    "@host",
    "@/0",
    "/0",
    ":6379/0",
    "@host:x",
    "@host:99999",
    "@[::1",
    "@[::1]/0",
    "@host/zero",
    "@host/0/1",
    "?db=1",
    "@host?bogus=1",
    "@host?db=x",
    "@host?ssl_cert_reqs=none",
    "@/run/server.sock",
    "/run/server.sock",
    "@ho st",
]
WHOLE = ["{}host/0?password={}", "{}host/0?password={}&bogus=1", "{}host/x?ssl_password={}", "{}host?pasword={}"]


@given(st.sampled_from(STARTS), st.sampled_from(USERS), SECRET, st.sampled_from(ENDS), st.sampled_from([None, *WHOLE]))
def test_no_url_shows_its_password(start: str, user: str, secret: str, end: str, whole: str | None) -> None:
    """Whatever was forgotten, not escaped or put in the wrong place: in no message, no cause and no repr."""
    url = f"{start}{user}:{secret}{end}" if whole is None else whole.format(start, secret)
    try:
        concert = Coordinator(url)
    except ValueError as error:
        shown = f"{error!r} {error.__cause__!r} {'' if error.__suppress_context__ else repr(error.__context__)}"
    else:
        shown = f"{concert!r} {concert.url}"
    assert "Zq7" not in shown
