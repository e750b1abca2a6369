"""One HTML file that holds everything: text, styles, Vega's own JavaScript, charts as data.

Charts are JSON in script elements of another type, with every "<" escaped, and the template escapes all text. The page
carries a content security policy: no network at all, and only the two scripts whose digests it names may run, so a name
that slipped through as markup could still do nothing.

Invariant: the file opens from disk without a request; the same content gives the same bytes.

Does not know: plans, what is on the page.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import markupsafe

from draftproof import __version__
from draftproof.errors import InputError
from draftproof.measure.files import write_whole
from draftproof.measure.report_charts import Figure

_HELP = "the HTML report needs altair and vl-convert: pip install 'draftproof[report]'"
_CLOSING = ("</script", "<!--")  # would end a script element, or change how one is read


def altair() -> Any:
    """The altair module. Raises InputError where it is not installed."""
    try:
        import altair as module  # an optional dependency, and half a second to import
    except ImportError as error:
        raise InputError(_HELP) from error
    return module


def _vega() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, of the Vega-Lite version that altair writes."""
    try:
        import vl_convert
    except ImportError as error:
        raise InputError(_HELP) from error
    converter: Any = vl_convert  # its stub asks for an argument that has a default
    version = ".".join(altair().SCHEMA_VERSION.lstrip("v").split(".")[:2])
    return str(converter.javascript_bundle(vl_version=version))


def _resource(name: str) -> str:
    return importlib.resources.files("draftproof.measure").joinpath(name).read_text(encoding="utf-8")


def _digest(script: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() + "'"


def as_json(value: object) -> str:
    """JSON that can stand in a script element: no "<", and no line separators that old parsers take for line ends."""
    text = json.dumps(value, allow_nan=False, sort_keys=True)  # ASCII only
    return text.replace("<", "\\u003c")


def render(title: str, figures: Sequence[Figure], content: Mapping[str, Any]) -> str:
    """The page. content: what the template shows beside the figures."""
    scripts = [_vega(), _resource("report.js")]
    for script in scripts:
        if any(mark in script.lower() for mark in _CLOSING) or "\r" in script:
            raise RuntimeError("a script of the report can't be written into a page as it is")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(_resource("report.html.jinja"))
    return template.render(
        title=title,
        version=__version__,
        style=_safe(_resource("report.css")),
        scripts=list(map(_safe, scripts)),
        digests=" ".join(map(_digest, scripts)),
        figures=[{"figure": figure, "json": _safe(as_json(figure.spec))} for figure in figures],
        **content,
    )


def _safe(text: str) -> markupsafe.Markup:
    """Our own text, written as it is."""
    return markupsafe.Markup(text)


def write(path: str | Path, page: str) -> None:
    """The whole file or nothing; a file that was there is replaced. Raises InputError where it can't be written."""
    write_whole(Path(path), page.encode("utf-8", errors="backslashreplace"))
