"""/ui: the files of the page, with headers under which nothing but these files can run or be reached.

Invariant: whatever a bucket or a text is called, the browser runs no script that is not a file of the folder, asks no
other server, and makes no markup from text (`require-trusted-types-for`). No other page may frame this one: its
buttons move live traffic.

Does not know: what the page shows.
"""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import RedirectResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

FOLDER = Path(__file__).parent / "page"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # asked again with its ETag: after an update no file of before is left
}
_TYPES = {  # a machine's own table may say otherwise, and the browser would refuse a script of another type
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}


class _Files(StaticFiles):
    """The folder, with our headers."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """As of the base; raises HTTPException for what is not there."""
        response = await super().get_response(path, scope)
        response.headers.update(HEADERS)
        suffix = ".html" if path in (".", "") else Path(path).suffix
        if suffix in _TYPES and "content-type" in response.headers:
            response.headers["content-type"] = _TYPES[suffix]
        return response


def add_page(app: FastAPI) -> None:
    """The page's routes."""

    @app.get("/ui", include_in_schema=False)
    @app.head("/ui", include_in_schema=False)
    async def without_slash() -> Response:
        return RedirectResponse("ui/", 307)  # relative: it holds behind a proxy's prefix, too

    app.mount("/ui", _Files(directory=FOLDER, html=True))
