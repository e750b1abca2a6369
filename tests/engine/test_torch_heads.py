"""Draft heads on the torch backend, through the engine: texts of plain decoding in float64 and float32, pre-emption
included; drafts that are those of the training module run over the whole text, whatever is beside them.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional
from transformers import AutoModelForCausalLM, LlamaConfig

from draftproof import SamplingParams
from draftproof.drafters import make
from draftproof.drafters.choice import Choice
from draftproof.drafters.draft_vocab import DraftVocab
from draftproof.drafters.tree_shape import FREE, parse_shape
from draftproof.kv.ledger import PageLedger
from draftproof.models.eagle_config import EagleConfig
from draftproof.models.head_files import save_head
from draftproof.models.hf import TorchTarget
from draftproof.models.medusa_config import MedusaConfig
from draftproof.models.module import load_module
from draftproof.models.torch_head import TorchHead
from draftproof.models.torch_medusa import TorchMedusa
from draftproof.noise import PhiloxNoise
from draftproof.train.medusa import foresee, new_heads
from draftproof.train.start import new_head
from draftproof.train.unroll import see, unroll

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("unsure_heads_draft")]
V, IDS = 61, torch.tensor([0, 2, 3, 7, *range(8, 61)])
CONFIG = LlamaConfig(
    vocab_size=V,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=96,
    initializer_range=0.2,
)
RULES = {
    "greedy": {},
    "coupled": {"temperature": 0.9, "rule": "coupled"},
    "follow": {"temperature": 1.0, "rule": "follow", "top_p": 0.9},
}
DRAFTERS = ["eagle", "eagle dynamic", "eagle 2,2,1", "medusa", "medusa 2,2,1", "cascade", "cascade 2,2,1"]
PROMPTS = [list(range(5, 17)), [3], [9, 8, 7] * 7, [40, 41, 40, 41, 40], [60, 2, 33], [11] * 9]


def train(head, model, texts, loss):
    sight = see(model, head, texts, torch.ones_like(texts, dtype=torch.bool))
    optimiser = torch.optim.Adam(head.parameters(), 3e-3)
    for _ in range(40):
        optimiser.zero_grad()
        loss(sight).loss.backward()
        optimiser.step()
    head.requires_grad_(False)


@pytest.fixture(scope="module")
def toy():
    """A random target in float64, sure enough of itself to be foreseen, and heads trained a second on texts it drew."""
    torch.set_num_threads(1)
    with torch.random.fork_rng():
        torch.manual_seed(8)
        model = AutoModelForCausalLM.from_config(CONFIG, dtype=torch.float32).eval().requires_grad_(False)
    for name, weight in model.named_parameters():
        weight.mul_(
            3 if name.startswith("lm_head") else 0.5 if name.endswith(("o_proj.weight", "down_proj.weight")) else 1
        )
    eagle = new_head(EagleConfig.of_target(CONFIG, (1, 2, 3), len(IDS)), model, IDS, torch.arange(60).reshape(2, 30), 0)
    medusa = new_heads(MedusaConfig.of_target(CONFIG, 3, len(IDS)), model, IDS)
    texts, generator = torch.arange(20)[:, None], torch.Generator().manual_seed(1)
    with torch.no_grad():
        for _ in range(24):
            law = torch.softmax(model(texts, use_cache=False).logits[:, -1], -1)
            texts = torch.cat([texts, torch.multinomial(law, 1, generator=generator)], 1)
    embedding, output = (part.weight.detach() for part in (model.get_input_embeddings(), model.get_output_embeddings()))
    train(eagle, model, texts, lambda sight: unroll(eagle, embedding, output[IDS], sight, 3))
    train(medusa, model, texts, lambda sight: foresee(medusa, output[IDS], sight, 3))
    return SimpleNamespace(model=model.double(), eagle=eagle.eval(), medusa=medusa.eval(), truth={})


def target_of(toy, kind, numerics="fast", make_target=TorchTarget):
    layers = (3,) if kind == "medusa" else (1, 2, 3)
    return make_target(toy.model, num_pages=120, page_size=4, numerics=numerics, features=layers)


def drafter_of(toy, target, name, head_bytes=1 << 18):
    kind, _, tree = name.partition(" ")
    more = {"tree": parse_shape(tree, FREE)} if tree else {}
    if kind == "medusa":
        heads = TorchMedusa(toy.medusa, toy.model, numerics=target.numerics)
        return make(kind, target=heads, vocab_size=V, mapping=heads.draft_ids, **more)
    head = TorchHead(toy.eagle, toy.model, kv_bytes=head_bytes, page_size=4, numerics=target.numerics)
    ledger = PageLedger(head.num_pages, head.page_size)
    return make(kind, target=head, ledger=ledger, vocab_size=V, mapping=head.draft_ids, **more)


def plain(toy, truth, prompt, params):
    """Of the one-token loop, once a session."""
    key = (tuple(prompt), repr(params))
    if key not in toy.truth:
        target = TorchTarget(toy.model, num_pages=120, page_size=4)
        toy.truth[key] = truth(target, prompt, params)[0]
    return toy.truth[key]


def restarts(drafter):
    """How often a sequence's states came from the start again; counted as the run goes."""
    ends, count, observe = {}, [0], drafter.observe

    def watch(commits):
        for commit in commits:
            count[0] += commit.start == 0 and ends.get(commit.seq, 0) > 0
            ends[commit.seq] = commit.start + len(commit.kept)
        observe(commits)

    drafter.observe = watch
    return count


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", DRAFTERS)
def test_texts_are_the_plain_loops_alone_in_batches_and_set_back(name, rule, toy, truth, engine_of, play):
    params = SamplingParams(seed=5, max_new_tokens=14, **RULES[rule])
    wanted = [plain(toy, truth, prompt, params) for prompt in PROMPTS]
    target = target_of(toy, name.split()[0])
    found = play(engine_of(target, drafter_of(toy, target, name), gamma=5), [(PROMPTS[2], params)])
    assert found[0].tokens == wanted[2]
    engine = engine_of(target, drafter_of(toy, target, name), gamma=5, chunk_rows=5)
    assert [run.tokens for run in play(engine, [(prompt, params) for prompt in PROMPTS])] == wanted
    assert engine.meter.drafted > 40
    assert engine.meter.accepted > 10
    drafter = drafter_of(toy, target, name, 1 << 15)
    count, small = restarts(drafter), engine_of(target, drafter, gamma=5, pages=26, chunk_rows=5)
    assert [run.tokens for run in play(small, [(prompt, params) for prompt in PROMPTS])] == wanted
    assert small.meter.drafted > 20
    assert count[0] > 0, "nobody was set back"


@torch.no_grad()
def whole(toy, item):
    """A chain's choice at min_path 0, from the training module over the whole text and no cache."""
    head, model = toy.eagle, toy.model
    tokens = torch.from_numpy(item.tokens.astype(np.int64))
    model.set_attn_implementation("sdpa")
    seen = model(tokens[None, :-1], use_cache=False, output_hidden_states=True).hidden_states
    states = torch.cat([seen[layer][0] for layer in head.config.feature_layers], -1)
    fused, ids = functional.linear(states, head.fc.weight.double()), tokens[1:]
    output = model.get_output_embeddings().weight[IDS]
    choice = Choice(item, PhiloxNoise(), DraftVocab(len(IDS), V, IDS.numpy()), item.budget, min_path=0.0)

    def attend(query, key, value):
        query, key, value = (part.transpose(0, 1) for part in (query, key, value))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        return mixed.transpose(0, 1)

    wide = toy.wide
    while True:
        hidden = wide(model.get_input_embeddings()(ids), fused, torch.arange(len(ids)), attend)
        choice.extend(functional.linear(wide.norm(hidden[-1]), output).numpy())
        if choice.ended:
            return choice.draft()
        ids = torch.cat([ids, torch.tensor(choice.tokens[-1:])])
        fused = torch.cat([fused, hidden[-1:]])


def drafts_are_the_training_modules(toy, engine_of, play, make_target):
    """Every draft of a batch, with its laws, against `whole`; the two runs of the target differ by rounding."""
    toy.wide = type(toy.eagle)(toy.eagle.config).double()
    toy.wide.load_state_dict(toy.eagle.state_dict())
    target, count = target_of(toy, "eagle", make_target=make_target), 0
    drafter = drafter_of(toy, target, "eagle")
    drafter._min_path, propose, pairs = 0.0, drafter.propose, []

    def watch(items, noise):
        drafts = propose(items, noise)
        pairs.extend(zip(items, drafts, strict=True))
        return drafts

    drafter.propose = watch
    params = [{}, {"temperature": 1.0, "rule": "reject"}, {"temperature": 0.8, "rule": "block"}, RULES["coupled"]]
    requests = [
        (prompt, SamplingParams(seed=3, max_new_tokens=12, **params[index % 4])) for index, prompt in enumerate(PROMPTS)
    ]
    play(engine_of(target, drafter, gamma=4, chunk_rows=5), requests)
    for item, draft in pairs:
        if len(draft):
            truth = whole(toy, item)
            assert draft.tokens.tolist() == truth.tokens.tolist()
            count += len(draft)
            if truth.laws is not None:
                assert np.abs(draft.laws - truth.laws).max() < 1e-6
    assert count > 100


def test_drafts_are_those_of_the_training_module_over_the_whole_text(toy, engine_of, play):
    drafts_are_the_training_modules(toy, engine_of, play, TorchTarget)


class Shifted(TorchTarget):
    """A mutant: each row is given the states of the row before."""

    def verify(self, batch):
        output = super().verify(batch)
        return type(output)(output.logits, output.offsets, np.roll(output.features, 1, 0))


def test_states_one_row_off_are_found_out(toy, engine_of, play):
    with pytest.raises(AssertionError):
        drafts_are_the_training_modules(toy, engine_of, play, Shifted)


@pytest.mark.parametrize("name", ["eagle", "eagle dynamic", "medusa", "medusa 2,2,1"])
def test_invariant_drafts_are_the_same_bits_whatever_is_beside_them(name, toy, engine_of, play):
    """D5 through the engine: with ratio rules a draft carries its laws, and these hang on every state before it."""

    def drafts(requests, **limits):
        target = target_of(toy, name.split()[0], "invariant")
        drafter = drafter_of(toy, target, name)
        propose, seen = drafter.propose, {}

        def watch(items, noise):
            found = propose(items, noise)
            for item, draft in zip(items, found, strict=True):
                if len(draft):
                    seen[item.seed, item.round] = draft
            return found

        drafter.propose = watch
        play(engine_of(target, drafter, gamma=4, **limits), requests)
        return seen

    rules = [{"temperature": 1.0, "rule": "reject"}, {"temperature": 0.8, "rule": "block"}]
    requests = [
        (prompt, SamplingParams(seed=index, max_new_tokens=9, **rules[index % 2]))
        for index, prompt in enumerate(PROMPTS)
    ]
    together = drafts(requests, chunk_rows=5)
    alone = {key: draft for request in requests for key, draft in drafts([request]).items()}
    assert together.keys() == alone.keys()
    assert len(alone) > 20
    for key, draft in together.items():
        for field in ("tokens", "parents", "laws", "law_row"):
            assert np.array_equal(getattr(draft, field), getattr(alone[key], field))


# -- through the public class, in float32 ------------------------------------------------------------------------------

TEXTS = ["abc abc", "x", "The quick brown fox", "1 2 3"]
TORCH = {"backend": "torch", "weights": "float32"}


@pytest.fixture(scope="module")
def folders(folder, tmp_path_factory):
    """Drafter -> folder of an untrained head of the tiny target."""
    module, ids = load_module(folder), torch.arange(200)
    eagle, medusa = tmp_path_factory.mktemp("eagle"), tmp_path_factory.mktemp("medusa")
    sample = torch.arange(64).reshape(2, 32)
    save_head(new_head(EagleConfig.of_target(module.config, None, 200), module, ids, sample, 0), eagle)
    save_head(new_heads(MedusaConfig.of_target(module.config, 3, 200), module, ids), medusa)
    return {"eagle": str(eagle), "cascade": str(eagle), "medusa": str(medusa)}


@pytest.mark.parametrize(
    ("drafter", "tree"), [("eagle", None), ("eagle", "dynamic"), ("medusa", None), ("cascade", None)]
)
@pytest.mark.parametrize("rule", ["greedy", "coupled"])
def test_texts_and_bits_are_plain_decodings(llm_of, folders, drafter, tree, rule):
    plain = llm_of(**TORCH, numerics="invariant")
    drafted = llm_of(
        **TORCH, drafter=drafter, draft_model=folders[drafter], gamma=3, tree=tree, chunk_rows=7, numerics="invariant"
    )
    settings = SamplingParams(max_new_tokens=9, seed=5, logprobs=0, ignore_eos=True, **RULES[rule])
    truth = [plain.generate(text, settings)[0] for text in TEXTS]
    found = drafted.generate(TEXTS, settings)
    for one, other in zip(found, truth, strict=True):
        assert one.token_ids == other.token_ids
        assert [entry.logprob for entry in one.logprobs] == [entry.logprob for entry in other.logprobs]
    assert sum(output.speculation.drafted for output in found) > 20


def test_a_ratio_rule_keeps_its_text_whatever_is_beside_it(llm_of, folders):
    llm = llm_of(
        **TORCH,
        drafter="eagle",
        draft_model=folders["eagle"],
        gamma=3,
        tree="dynamic",
        chunk_rows=7,
        numerics="invariant",
    )
    settings = SamplingParams(max_new_tokens=9, seed=3, temperature=1.0, rule="reject", ignore_eos=True)
    alone = [llm.generate(text, settings)[0].token_ids for text in TEXTS]
    assert [output.token_ids for output in llm.generate(TEXTS, settings)] == alone


def test_fast_numerics_run_too_and_say_what_they_are(llm_of, folders):
    llm = llm_of(**TORCH, drafter="eagle", draft_model=folders["eagle"], gamma=3, numerics="fast")
    outputs = llm.generate(TEXTS, SamplingParams(max_new_tokens=12, ignore_eos=True))
    assert sum(output.speculation.drafted for output in outputs) > 20
    head = llm.built.draft.target
    assert (llm.info["backend"], llm.info["numerics"], head.numerics) == ("torch", "fast", "fast")
    assert 0 < head.weight_bytes < llm.built.engine.target.weight_bytes
