"""An EAGLE-3 head in a folder, whoever wrote it: opened, checked, and told in draftproof's own words.

Opening reads the configuration and the headers of the tensors; a head that can't be run, or lacks something, is refused
there by name. What draftproof knows of a head and the other formats do not (the target's depth and tokenizer, the card)
travels in their config.json under `draftproof`, which their readers pass over.

Invariant: own -> public -> own is the same head, bit for bit, tensors and configuration.
Does not know: targets' weights, engines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from draftproof.errors import CorruptModel, InputError, ModelNotFound, UnsupportedModel
from draftproof.models.eagle_config import CONFIG, EagleConfig, read_config
from draftproof.models.head_formats import eagle3, speculators
from draftproof.models.head_formats.folder import Weights, find_weights, read_values
from draftproof.models.head_formats.layer import check_rows
from draftproof.models.head_formats.told import Told

if TYPE_CHECKING:
    from torch import Tensor

OWN, SPECULATORS, EAGLE3 = "draftproof", "speculators", "eagle3"
ASIDE = "draftproof"  # the entry of a public config.json that holds what only draftproof knows
EMBEDDING, OUTPUT = "embed_tokens.weight", "lm_head.weight"
_PUBLIC: dict[str, ModuleType] = {SPECULATORS: speculators, EAGLE3: eagle3}
_PASSED_OVER = ("verifier_lm_head.weight", "verifier_norm.weight")  # of the target, kept by some trainers
_KNOWN = {field.name for field in fields(EagleConfig)}


@dataclass(frozen=True, slots=True)
class OpenHead:
    """A head that has been looked at, not loaded."""

    folder: Path
    form: str  # OWN, SPECULATORS or EAGLE3
    config: EagleConfig
    more: Mapping[str, Any]  # what else it tells of itself: its card
    verifier: Mapping[str, Any]  # what a speculators configuration tells of the target
    weights: Weights
    names: Mapping[str, str]  # ours -> the file's

    def state(self) -> dict[str, Tensor]:
        """Its tensors under the names of an `EagleHead`, in the dtypes of the file. Raises CorruptModel."""
        import torch  # seconds to import, and opening does without

        found = self.weights.load()
        state = {ours: found[theirs] for ours, theirs in self.names.items() if ours != "t2d"}
        for name, tensor in state.items():
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                raise CorruptModel(f"{self.folder}: {name} holds values that are no numbers: get the draft head again")
        state.setdefault("d2t", torch.zeros(self.config.draft_vocab_size, dtype=torch.int64))
        state["d2t"] = state["d2t"].to(torch.int64)
        t2d = self.names.get("t2d")
        self._check_ids(state["d2t"], None if t2d is None else found[t2d])
        return state

    def _check_ids(self, d2t: Tensor, t2d: Tensor | None) -> None:
        import torch

        ids = d2t + torch.arange(len(d2t))
        if not bool((ids.diff() > 0).all() & (ids[0] >= 0) & (ids[-1] < self.config.vocab_size)):
            raise CorruptModel(f"{self.folder}: its table d2t names no rising ids of the target's vocabulary")
        if t2d is not None and t2d.nonzero()[:, 0].tolist() != ids.tolist():
            raise CorruptModel(f"{self.folder}: its tables d2t and t2d name different tokens")


def form_of(values: Mapping[str, Any]) -> str | None:
    """Whose format a config.json is in; None where it is of no EAGLE-3 head."""
    if "kind" in values:
        return OWN
    return next((form for form, module in _PUBLIC.items() if module.is_it(values)), None)


def is_own(folder: Path) -> bool:
    """Whether a folder is to be read as draftproof's own: one without a configuration is, and is refused there."""
    return not (folder / CONFIG).is_file() or form_of(read_values(folder)) in (None, OWN)


def open_head(folder: Path, target: Mapping[str, Any] | None = None) -> OpenHead:
    """The head in a folder of any format.

    target: the values of the target's config.json; a foreign head does not tell how deep its target is.
    Raises ModelNotFound, CorruptModel, UnsupportedModel, or InputError where the target is needed and not given.
    """
    values = read_values(folder)
    form = form_of(values)
    if form is None:
        raise ModelNotFound(
            f"{folder} holds no draft head that draftproof knows: its own, speculators' or an EAGLE-3 checkpoint"
        )
    if form == OWN:
        config = read_config(folder)
        more = {name: value for name, value in values.items() if name not in _KNOWN | {"kind"}}
        weights = find_weights(folder)
        return OpenHead(folder, form, config, more, {}, weights, _names(folder, config, weights, {}))
    return _public(folder, form, values, target)


def _public(folder: Path, form: str, values: dict[str, Any], target: Mapping[str, Any] | None) -> OpenHead:
    where = f"{folder}/config.json"
    if target is not None:
        check_rows(target)
    told = Told(values, where)
    read: Callable[[Told], tuple[dict[str, Any], tuple[int, ...] | None]] = _PUBLIC[form].read
    found, layers = read(told)
    aside = told.part(ASIDE)
    depth = _depth(folder, aside, target)
    weights = find_weights(folder)
    theirs = _mapped(folder, weights)
    config = EagleConfig(
        **found,
        feature_layers=_layers(folder, layers, depth),
        target_layers=depth,
        tokenizer=aside.values.get("tokenizer"),
        own_output=OUTPUT in theirs,
        own_embedding=EMBEDDING in theirs,
    )
    if not config.own_output and config.draft_vocab_size != config.vocab_size:
        raise CorruptModel(f"{folder} lacks the tensor {OUTPUT} of its {config.draft_vocab_size} draft tokens")
    more = aside.part("more").values if aside.values else {"taken_from": form}
    verifier = told.part("speculators_config").part("verifier").values
    names = _names(folder, config, weights, theirs)
    return OpenHead(folder, form, config, more, verifier, weights, names)


def aside_of(config: EagleConfig, more: Mapping[str, Any]) -> dict[str, Any]:
    """What a public config.json is given under `draftproof`, so that nothing is lost on the way back."""
    return {"target_layers": config.target_layers, "tokenizer": config.tokenizer, "more": dict(more)}


def shapes_of(config: EagleConfig) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every tensor of a head, as of `EagleHead`."""
    size, wide = config.hidden_size, config.intermediate_size
    query, key = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    layer = {
        "input_layernorm": (size,),
        "hidden_norm": (size,),
        "post_attention_layernorm": (size,),
        "self_attn.q_proj": (query, 2 * size),
        "self_attn.k_proj": (key, 2 * size),
        "self_attn.v_proj": (key, 2 * size),
        "self_attn.o_proj": (size, query),
        "mlp.gate_proj": (wide, size),
        "mlp.up_proj": (wide, size),
        "mlp.down_proj": (size, wide),
    }
    shapes: dict[str, tuple[int, ...]] = {f"midlayer.{name}.weight": shape for name, shape in layer.items()}
    shapes |= {"fc.weight": (size, len(config.feature_layers) * size), "norm.weight": (size,)}
    shapes |= {"d2t": (config.draft_vocab_size,), "t2d": (config.vocab_size,)}
    if config.own_output:
        shapes[OUTPUT] = (config.draft_vocab_size, size)
    if config.own_embedding:
        shapes[EMBEDDING] = (config.vocab_size, size)
    return shapes


def public_name(name: str, form: str) -> str:
    """Our name of a tensor in a public format: speculators numbers the layer, EAGLE-3 calls it midlayer as we do."""
    return name.replace("midlayer.", "layers.0.") if form == SPECULATORS else name


def _mapped(folder: Path, weights: Weights) -> dict[str, str]:
    """Our name -> the file's, for all tensors that matter."""
    names: dict[str, str] = {}
    for theirs in weights.shapes:
        ours = theirs.removeprefix("model.").replace("layers.0.", "midlayer.", 1)
        if ours in _PASSED_OVER or ours.endswith("rotary_emb.inv_freq"):
            continue
        if ours in names:
            raise CorruptModel(f"{folder} holds {ours} twice, as {names[ours]} and {theirs}: get the draft head again")
        names[ours] = theirs
    return names


def _names(folder: Path, config: EagleConfig, weights: Weights, found: Mapping[str, str]) -> dict[str, str]:
    """Our name -> the file's. Raises unless exactly the head's tensors are there, each of its shape."""
    names = dict(found or _mapped(folder, weights))
    shapes = shapes_of(config)
    optional = {"t2d"} | ({"d2t"} if config.draft_vocab_size == config.vocab_size else set())
    missing = sorted(set(shapes) - set(names) - optional)
    if missing:
        raise CorruptModel(f"{folder} lacks {len(missing)} tensors of the head its config.json tells of: {missing[0]}")
    strange = sorted(set(names) - set(shapes))
    if strange:
        raise UnsupportedModel(f"{folder} holds tensors that no head draftproof can run has: {', '.join(strange[:3])}")
    for name, theirs in names.items():
        if weights.shapes[theirs] != shapes[name]:
            raise CorruptModel(
                f"{folder}: {theirs} has the shape {list(weights.shapes[theirs])}, its config.json asks for "
                f"{list(shapes[name])}"
            )
    return names


def _depth(folder: Path, aside: Told, target: Mapping[str, Any] | None) -> int:
    """Layers of the target the head was made for: by its own word, else those of the target it is given to."""
    if aside.values.get("target_layers") is not None:
        return aside.integer("target_layers")
    if target is None:
        raise InputError(f"{folder} does not tell how many layers its target has: give the target (--model)")
    return Told(target, "the target's config.json").integer("num_hidden_layers")


def _layers(folder: Path, told: tuple[int, ...] | None, depth: int) -> tuple[int, ...]:
    """In rising order, as every engine reads them."""
    layers = tuple(sorted(told if told is not None else (2, depth // 2, depth - 3)))
    if layers[0] < 0 or layers[-1] >= depth or len(set(layers)) < len(layers):
        why = "; behind all layers other engines read before the last norm" if layers[-1] == depth else ""
        raise UnsupportedModel(
            f"{folder} reads the target after {', '.join(map(str, layers))} layers: they must be different ones of "
            f"0..{depth - 1}{why}"
        )
    return layers


def own_values(config: EagleConfig, more: Mapping[str, Any]) -> dict[str, Any]:
    """config.json of draftproof's own format."""
    return config.to_json() | dict(more)


def told_of(config: EagleConfig) -> dict[str, Any]:
    """All fields, JSON-ready."""
    scaling = None if config.rope_scaling is None else config.rope_scaling.to_json()
    return asdict(config) | {"feature_layers": list(config.feature_layers), "rope_scaling": scaling}
