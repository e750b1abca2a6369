"""The bounded line: how many texts the server has taken and not finished, running ones included.

Invariant: at most `room`; what does not fit is refused at once, never kept waiting outside the line. Event loop only.

Does not know: what a text is, in which order they run.
"""

from __future__ import annotations

from draftproof.serve.errors import ApiError, busy


class Line:
    """Counts texts in and out."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.taken = 0
        self.closed: str | None = None  # why nothing is taken any more

    def enter(self, count: int) -> None:
        """Takes so many texts. Raises ApiError: 503 when there is no room now, 400 when there never is."""
        if self.closed is not None:
            raise busy(self.closed)
        if count > self.room:
            message = f"{count} texts in one request; this server takes at most {self.room} at once"
            raise ApiError(400, message, code="too_many_texts", param="n")
        if self.taken + count > self.room:
            raise busy(f"the server is full: {self.taken} texts run or wait; try again")
        self.taken += count

    def leave(self, count: int) -> None:
        """So many texts are done with."""
        self.taken -= count

    def close(self, reason: str) -> None:
        """From now on everything is refused."""
        self.closed = reason
