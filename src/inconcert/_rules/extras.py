"""The error of a module whose libraries are not installed: it names the extra that brings them."""

from types import TracebackType


class needs_extra:  # noqa: N801 - a statement, as `contextlib.suppress` is
    """Around the imports of what an extra brings: `with needs_extra("fastapi"): import starlette`.

    Raises:
        ModuleNotFoundError: Something imported is not there; its message says what to install.
    """

    def __init__(self, extra: str) -> None:
        self._extra = extra

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("inconcert"):
            module = "inconcert" if trace is None else trace.tb_frame.f_globals["__name__"]
            raise ModuleNotFoundError(
                f"{module} needs {error.name.partition('.')[0]}, which is not installed; run"
                f"  pip install 'inconcert[{self._extra}]'",
                name=error.name,
            ) from error
