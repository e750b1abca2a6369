"""Whatever our own description of the API allows, and what it forbids: never a 500, nor an answer it does not name."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import hypothesis
import pytest
import schemathesis
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from draftproof.serve.app import make_app
from draftproof.serve.build import serve_built
from draftproof.serve.journal import Journal
from draftproof.serve.service import Service
from draftproof.serve.settings import ServeSettings
from draftproof.serve.tally import Tally
from draftproof.serve.treatment import Chooser

ROUTES = ("/v1/chat/completions", "/v1/completions", "/v1/models/{name}", "/admin/rollout/log", "/admin/rollout/stop")
EXAMPLES = int(os.environ.get("DRAFTPROOF_FUZZ_EXAMPLES", "40"))
CHECKS = [not_a_server_error, status_code_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def schema(built: Any) -> Any:
    settings = ServeSettings()
    service = Service(settings, serve_built(built[:1], ["suffix"]), Chooser(["suffix"]), Tally(), Journal())
    return make_app(service).openapi()


def test_the_description_is_whole(schema):
    assert set(ROUTES) <= set(schema["paths"])
    for path in schema["paths"].values():
        for operation in path.values():
            assert "422" not in operation["responses"]
            assert {"200", "400", "500", "503"} <= set(operation["responses"])
    assert "HTTPValidationError" not in schema["components"]["schemas"]
    assert schema["components"]["schemas"]["ChatAsked"]["additionalProperties"] is False


@pytest.mark.timeout(280)
@pytest.mark.parametrize(
    ("path", "mode"),
    [(path, mode) for path in ROUTES for mode in GenerationMode if "name" not in path or mode.is_positive],
)  # no name of a model is forbidden
def test_no_request_makes_the_server_fail(path, mode, serve, schema):
    running = serve(("suffix",), request_timeout=20.0)
    (operation,) = schemathesis.openapi.from_dict(schema)[path].values()
    statuses: Counter[int] = Counter()

    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    @hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    def call(case: Any) -> None:
        if isinstance(case.body, dict) and type(case.body.get("max_tokens")) is int:
            case.body["max_tokens"] = min(case.body["max_tokens"], 8)  # the point is not to wait
        response = case.call(base_url=running.url)
        statuses[response.status_code] += 1
        case.validate_response(response, checks=CHECKS)

    call()
    assert set(statuses) <= {200, 400, 404}
    assert mode.is_negative or statuses[200] or "completions" not in path, statuses
    assert not running.lines("a fault of the server")
    assert not running.lines("a step failed")
    assert running.http().get("/health").status_code == 200
