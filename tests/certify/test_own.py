"""The real demo model through `own`: a certificate that can be run again."""

import json
import os

import pytest

from draftproof.certify import check_read, dumps
from draftproof.certify import own as making
from draftproof.certify.own import options_of, prepare
from draftproof.engine.options import EngineOptions
from draftproof.errors import InvalidParams
from draftproof.types import SamplingParams


@pytest.mark.demo
def test_the_demo_model(tmp_path_factory):
    cache = os.environ.get("DRAFTPROOF_CACHE_DIR") or str(tmp_path_factory.mktemp("demo-cache"))
    own = prepare(EngineOptions(drafter="ngram", gamma=3, cache_dir=cache))
    params = SamplingParams(temperature=0.8, top_p=0.9, rule="reject", bad_words=("river",))
    plan = own.plan(["a b c a b c a b", "one two one two one"], params, tokens=160, text_tokens=20, tests=("fit",))
    assert all(isinstance(token, int) for word in plan.params.bad_words for token in word)
    assert plan.stop_ids
    made = check_read(json.loads(dumps(own.certify(plan))), "made")
    assert made["verdict"] == "not_enough_evidence"  # so few tokens show nothing
    assert made["speculation"]["tested"] > 0
    assert len(made["subject"]["files"]["graph.bin"]) == 64
    assert options_of(made["subject"]["options"], cache) == own.options


def test_options_that_are_none():
    with pytest.raises(InvalidParams, match="can't be used"):
        options_of({"magic": 1}, None)


@pytest.mark.parametrize(
    "asked",
    [
        EngineOptions(drafter="cascade", draft_model="h", tree="auto", gamma=4),
        EngineOptions(drafter="model", draft_model="demo", draft_weights="int8", weights="float32"),
        EngineOptions(drafter="early_exit", exit_layer=2, draft_weights="float32", cost_file="c"),
    ],
)
def test_the_baseline_is_the_same_target_without_a_drafter(asked, monkeypatch):
    class Enough(Exception):
        pass

    def build_each(options, report):
        assert options == [asked, EngineOptions(drafter="none", weights=asked.weights)]
        raise Enough

    monkeypatch.setattr(making, "build_each", build_each)
    with pytest.raises(Enough):
        prepare(asked)
    assert options_of(json.loads(json.dumps(making.asked(asked))), None) == asked
