"""An event loop of uvloop that says what was left open when it is closed.

uvloop warns of each transport and server that it has to close itself.  In the tests that warning is an error, and such
an error keeps uvloop from closing the thing that it then waits for, forever and outside Python.
"""

import warnings

import uvloop

__all__ = ["CheckedLoop"]


class CheckedLoop(uvloop.Loop):
    """As `uvloop.new_event_loop()` makes it, but for `close()`."""

    def close(self) -> None:
        """Close it, and what was left open.

        Raises:
            AssertionError: Something was.
        """
        with warnings.catch_warnings(record=True) as left_open:
            warnings.simplefilter("always", ResourceWarning)
            super().close()
        assert not left_open, "; ".join(str(warning.message) for warning in left_open)
