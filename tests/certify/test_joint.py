"""Joint cells: one cell a text, chances that sum to 1, right rates, and errors that no single token shows."""

import numpy as np
import pytest
from setups import setup

from draftproof.certify import joint
from draftproof.certify.results import judged
from draftproof.certify.types import Job
from draftproof.types import SamplingParams

LAWS = {(): [0.5, 0.5], (0,): [0.5, 0.5], (1,): [0.5, 0.5]}


class Table:
    """A reference of given laws; any prefix that is not named has the first one."""

    name = "table"

    def __init__(self, laws, vocab=2):
        self._laws = laws

    def laws(self, job, tokens):
        for index in range(len(tokens)):
            yield np.array(self._laws.get(tuple(tokens[:index]), self._laws[()]))

    def logits(self, job, tokens):
        return np.log(np.array(self._laws.get(tuple(tokens), self._laws[()])))

    def facts(self):
        return {}


JOB = Job(0, (1,), SamplingParams(temperature=1.0))


def sample(rng, laws, count, depth=2):
    texts = []
    for _ in range(count):
        text = ()
        while len(text) < depth:
            text = (*text, int(rng.choice(2, p=laws[text])))
        texts.append(list(text))
    return texts


def test_cells_are_a_partition_with_chances_that_sum_to_one():
    _, reference, plan = setup(4)
    tree = joint.known_tree(reference, plan.job(1, 0, plan.prompts[0], max_new_tokens=3), 3, 4000)
    assert sum(tree.chances.values()) == pytest.approx(1, abs=1e-9)
    vocab = reference.target.vocab_size
    cells = {tree.cell(text) for text in np.ndindex(vocab, vocab, vocab)}
    assert cells == {cell for cell, chance in tree.chances.items() if chance > 1e-12}
    assert len(cells) > vocab  # it looks past the first token


def test_a_stop_id_is_a_cell_of_its_own():
    job = Job(0, (1,), SamplingParams(temperature=1.0), frozenset({0}))
    tree = joint.known_tree(Table(LAWS), job, 2, 1000)
    assert tree.cell([0]) == ((0,), False)
    assert tree.chances[(0,), False] == 0.5
    assert tree.cell([1, 0]) == ((1, 0), False)


def test_right_texts_raise_no_alarm_and_a_hidden_dependence_does():
    """Each token alone is right: only together they are not."""
    rng = np.random.default_rng(0)
    tree = joint.known_tree(Table(LAWS), JOB, 2, 1000)
    p_values = [joint.against_law(tree, sample(rng, LAWS, 1000), "joint.a").p_value for _ in range(60)]
    assert min(p_values) > 1e-3
    assert 0.3 < np.mean(p_values) < 0.7
    wrong = {(): [0.5, 0.5], (0,): [0.62, 0.38], (1,): [0.38, 0.62]}
    found = judged([joint.against_law(tree, sample(rng, wrong, 1000), "joint.a")], 1e-3)[0]
    assert found.alarm
    assert found.tv_99 == pytest.approx(0.095, abs=0.03)
    assert found.detail["worst"]["expected"] == 0.25


def test_two_samples_need_no_law():
    rng = np.random.default_rng(1)
    tree = joint.pilot_tree(sample(rng, LAWS, 300), 2, 1500)
    same = [
        joint.against_baseline(tree, sample(rng, LAWS, 1500), sample(rng, LAWS, 1500), "joint.a").p_value
        for _ in range(40)
    ]
    assert min(same) > 1e-3
    assert 0.3 < np.mean(same) < 0.7
    wrong = {(): [0.5, 0.5], (0,): [0.65, 0.35], (1,): [0.35, 0.65]}
    assert joint.against_baseline(tree, sample(rng, wrong, 1500), sample(rng, LAWS, 1500), "joint.a").p_value < 1e-6


def test_rare_tokens_share_a_cell():
    laws = {(): [0.97, 0.03]}
    tree = joint.known_tree(Table(laws), JOB, 1, 200)
    assert tree.chances == {((0,), False): 0.97, ((), True): pytest.approx(0.03)}
    result = joint.against_law(tree, [[0]] * 194 + [[1]] * 6, "joint.a")
    assert result.detail["cells"] == 1  # 6 expected: too few for a cell, and the other one takes it in
    assert result.p_value == 1.0
