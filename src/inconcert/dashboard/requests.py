"""Checks of a request before it changes anything, and headers that every answer has.

Source: https://web.dev/articles/fetch-metadata
"""

from urllib.parse import parse_qs, urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_LARGEST_FORM = 4096  # bytes: a name has 512, and each may be written as three
LARGEST_EDITED = 64 * 1024  # bytes of arguments, and in a form three times as many


def check_origin(request: Request) -> None:
    """Refuse what another site makes a browser send.

    Browsers say where a request comes from in `Sec-Fetch-Site`; those that do not, over plain HTTP, in `Origin`.

    Raises:
        HTTPException: 403: it comes from elsewhere, or does not say.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        is_ours = site == "same-origin"
    else:
        is_ours = urlsplit(request.headers.get("origin", "")).netloc == request.headers.get("host")
    if not is_ours:
        raise HTTPException(403, "This request does not come from the dashboard.")


async def read_form(request: Request, *, has_arguments: bool = False) -> dict[str, str]:
    """The fields of a small form, each once; one with arguments of a job may be larger.

    Raises:
        HTTPException: 413: it is too large. 400: it is not text, or has not come to its end.
    """
    largest = _LARGEST_FORM + 3 * LARGEST_EDITED * has_arguments
    body = b""
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > largest:
                raise HTTPException(413, "This form is too large.")
        fields = parse_qs(body.decode("ascii"), errors="strict", max_num_fields=8)
    except (ClientDisconnect, ValueError):
        raise HTTPException(400, "This form cannot be read.") from None
    return {name: values[-1] for name, values in fields.items()}
