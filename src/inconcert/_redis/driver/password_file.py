"""A password that is in a file."""

from pathlib import Path

from redis.credentials import CredentialProvider


class PasswordFile(CredentialProvider):
    """Logs in with the content of a file, without the white space at its end; it may be replaced at any time."""

    def __init__(self, path: Path, username: str | None) -> None:
        self._path = path
        self._username = username

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        """The arguments of `AUTH`.

        Raises:
            OSError: The file cannot be read.
        """
        password = self._path.read_text("utf-8").rstrip()
        return (password,) if self._username is None else (self._username, password)

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        """The same; a small file, which is read in no time."""
        return self.get_credentials()
