"""The pages, made from templates in which every text is escaped."""

from collections.abc import Collection

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request

from inconcert.dashboard import charts, formats
from inconcert.dashboard.live import reference, texts
from inconcert.dashboard.permissions import Permission
from inconcert.dashboard.poll import Seen
from inconcert.dashboard.redaction import Redact


class Pages:
    """Renders pages."""

    def __init__(self, title: str, redact: Redact) -> None:
        self._templates = Environment(
            loader=PackageLoader("inconcert.dashboard"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._known: dict[str, object] = {
            "title": title,
            "chart": charts,
            "redact": redact,
            "reference": reference,
            "Permission": Permission,
        }
        self._templates.filters.update(
            ago=formats.ago,
            ahead=formats.ahead,
            count=formats.count,
            duration=formats.duration,
            size=formats.size,
            when=formats.when,
        )

    def render(
        self, template: str, request: Request, *, seen: Seen, rows: Collection[str] = (), **values: object
    ) -> str:
        """A page; its rows name the queues and workers that it shows."""
        template_ = self._templates.get_template(template)
        known = self._known | values
        return template_.render(known, root=_root(request), page=template, seen=seen, texts=texts(seen, rows))

    def render_error(self, request: Request, status: int, detail: str) -> str:
        """The page that says why there is none; it asks nothing of the server."""
        return self._templates.get_template("error.html").render(root=_root(request), status=status, detail=detail)


def _root(request: Request) -> str:
    """The path at which the dashboard is mounted, without a slash at its end."""
    root: str = request.scope.get("root_path", "")
    return root
