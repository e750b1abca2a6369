"""What one engine's module gives back, and what all of them share: shell words, YAML, and the list of what is lost.

Invariant: text that came from a user (model names, bucket names) is quoted in commands and a single printable line
everywhere else, so nothing in it can end a comment or start a command.

Does not know: any engine's names.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from draftproof.export.policy import BucketWishes, Candidate, Policy, Tier, Wish, tiers_of

CONFIG_FILE = "speculative.yaml"
_WORD = re.compile(r"[A-Za-z][\w./-]*", re.ASCII)
_YAML_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
_FOREIGN = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")  # a JSON string may hold them, a YAML one may not


@dataclass(frozen=True, slots=True)
class Engine:
    """What an engine is called, and what it can do."""

    name: str
    version: str  # that its names were checked against
    kinds: frozenset[str]  # of drafters it has a match for
    by_load: frozenset[str]  # of drafters whose draft length it changes with the load
    instead: Mapping[str, str] = field(default_factory=dict)  # kind -> what it has in its place, and why not that


@dataclass(frozen=True, slots=True)
class Expressed:
    """What one engine's module says about a drafter: fields as of `Exported`; lost and notes beyond everybody's."""

    config: dict[str, Any]
    lost: Sequence[str]
    notes: Sequence[str]
    options: tuple[tuple[str, str], ...] = ()
    file_option: str | None = None


@dataclass(frozen=True, slots=True)
class Exported:
    """One policy in one engine's words."""

    engine: Engine
    enabled: bool
    summary: str  # one sentence
    config: dict[str, Any]  # the engine's own settings; empty for plain decoding
    words: tuple[str, ...]  # of the command, before its options
    options: tuple[tuple[str, str], ...]  # of the command: (name, value)
    file_option: str | None  # the option that names the configuration file; None where the command says it all
    not_expressed: tuple[str, ...]  # of the policy
    notes: tuple[str, ...]

    def command(self, file: str = CONFIG_FILE, between: str = " \\\n  ") -> str:
        """What to paste into a shell; `file` is where the configuration file is, for an engine that wants one."""
        named = [(self.file_option, file)] if self.file_option else []
        return shell(self.words, [*self.options, *named], between)

    @property
    def file_text(self) -> str | None:
        """The configuration file, where the engine wants one."""
        return yaml(self.config) if self.file_option else None

    def script(self, file: str = CONFIG_FILE) -> str:
        """All of it as one file: the configuration file, or a shell script with the command; the rest as comments."""
        said = [f"{self.engine.name} (names checked against {self.engine.version}): {self.summary}"]
        said += [f"not expressed: {line}" for line in self.not_expressed]
        said += [f"note: {line}" for line in self.notes]
        body = [f"command: {one_line(self.command(file, between=' '))}"] if self.file_option else []
        comments = "".join(f"# {line}\n" for line in [*said, *body])
        return comments + (self.file_text or f"{self.command(file)}\n")

    def as_dict(self, file: str = CONFIG_FILE) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "engine": self.engine.name,
            "checked_against": self.engine.version,
            "enabled": self.enabled,
            "summary": self.summary,
            "config": self.config,
            "config_file": self.file_text,
            "command": self.command(file),
            "not_expressed": list(self.not_expressed),
            "notes": list(self.notes),
        }


def one_line(text: str) -> str:
    """A user's text as one printable line."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def shell(words: Sequence[str], options: Sequence[tuple[str, str]], between: str = " \\\n  ") -> str:
    """A command line: the words, then each option with its value on a line of its own; everything quoted."""
    return between.join([shlex.join(words), *(f"{name} {shlex.quote(value)}" for name, value in options)])


def config_of(options: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Options of a command as settings: names without dashes, whole numbers as numbers."""
    return {name.lstrip("-"): int(value) if value.isdigit() else value for name, value in options}


def yaml(value: dict[str, Any], indent: int = 0) -> str:
    """Nested dicts of strings, numbers and booleans as YAML; keys are ours and need no quotes."""
    lines = []
    for key, inner in value.items():
        if isinstance(inner, dict):
            lines.append(f"{' ' * indent}{key}:\n{yaml(inner, indent + 2)}")
        else:
            lines.append(f"{' ' * indent}{key}: {_scalar(inner)}\n")
    return "".join(lines)


def _scalar(value: object) -> str:
    if isinstance(value, str) and _WORD.fullmatch(value) and value.lower() not in _YAML_WORDS:
        return value
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return _FOREIGN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def loads(policy: Policy) -> str:
    """ "a load of 8" or "loads of 1, 8, 64"."""
    return f"{'loads' if len(policy.concurrency) > 1 else 'a load'} of {', '.join(map(str, policy.concurrency))}"


def lost(policy: Policy, engine: Engine, chosen: Candidate | None) -> list[str]:
    """What of the policy any engine of this ability can't express, beside its own peculiarities."""
    lines = _lacking(policy, engine)
    lines += [line for bucket in policy.buckets if (line := _otherwise(bucket, policy, engine, chosen))]
    if chosen is None:
        return lines
    lines.append("a draft length for each request: all requests of a step get one")
    if chosen.kind not in engine.by_load and not policy.one_load:
        lines.append("a draft length for each load: one at every load, and no load at which drafting stops")
    lines.append("off by itself where drafting stops paying in a bucket, and on again after a probe")
    if policy.invariant:
        lines.append("numerics invariant: a wider step may round differently, so greedy text may differ from plain's")
    if policy.rule == "coupled" and policy.temperature > 0:
        lines.append("the rule coupled: the law of the text is kept, but a seed's text depends on the drafts")
    return lines


def _lacking(policy: Policy, engine: Engine) -> list[str]:
    return [
        f"the drafter {one_line(candidate.name)}: {_why_none(engine, candidate.kind)}"
        for candidate in policy.candidates
        if candidate.kind not in engine.kinds and _is_wanted(policy, candidate.name)
    ]


def _why_none(engine: Engine, kind: str) -> str:
    return f"{engine.name} has {engine.instead.get(kind, f'none of the kind {one_line(kind)}')}"


def _is_wanted(policy: Policy, drafter: str) -> bool:
    return any(wish.drafter == drafter for bucket in policy.buckets for wish in bucket.wishes)


def _otherwise(bucket: BucketWishes, policy: Policy, engine: Engine, chosen: Candidate | None) -> str | None:
    """Where this server does something else in a bucket than the plan says."""
    tiers = tiers_of(chosen, engine.by_load) if chosen else ()
    gammas = {tier.concurrency: tier.gamma for tier in tiers}
    done = [
        Wish(load, chosen.name, gammas[load]) if chosen and gammas[load] else Wish(load, None, 0)
        for load in policy.concurrency
    ]
    wishes = [wish for wish, is_done in zip(bucket.wishes, done, strict=True) if wish != is_done]
    if not wishes:
        return None
    return f"bucket {one_line(bucket.name)}: the plan says {'; '.join(map(_said, wishes))}"


def _said(wish: Wish) -> str:
    what = "do not enable" if wish.drafter is None else f"{one_line(wish.drafter)}, {wish.gamma} tokens"
    return f"{what} at {wish.concurrency}"


def plain(policy: Policy, engine: Engine, words: Sequence[str], why: str = "") -> Exported:
    """Do not enable: the plain command, and why."""
    return Exported(
        engine=engine,
        enabled=False,
        summary=f"do not enable: {why or _why_not(policy, engine)}",
        config={},
        words=tuple(words),
        options=(),
        file_option=None,
        not_expressed=tuple(lost(policy, engine, None)),
        notes=tuple(common_notes(policy)),
    )


def written(
    policy: Policy, engine: Engine, words: Sequence[str], express: Callable[[Policy, Candidate], Expressed]
) -> Exported:
    """The policy in an engine's words: what `express` makes of the best drafter, or the plain command."""
    chosen = policy.best(engine.kinds, engine.by_load)
    if chosen is None:
        return plain(policy, engine, words)
    said = express(policy, chosen)
    return Exported(
        engine=engine,
        enabled=True,
        summary=summary(policy, engine, chosen),
        config=said.config,
        words=tuple(words),
        options=said.options,
        file_option=said.file_option,
        not_expressed=(*lost(policy, engine, chosen), *said.lost),
        notes=(*common_notes(policy), *said.notes),
    )


def _why_not(policy: Policy, engine: Engine) -> str:
    fits = [candidate for candidate in policy.candidates if candidate.kind in engine.kinds]
    if not any(tier.gamma for candidate in policy.candidates for tier in candidate.by_load):
        return f"over all prompts no drafter is surely faster than plain decoding at {loads(policy)}"
    if not any(tier.gamma for candidate in fits for tier in candidate.by_load):
        return f"no drafter that {engine.name} has is surely faster than plain decoding at {loads(policy)}"
    return (
        f"{engine.name} drafts at every load alike, and no one length is surely faster at all {loads(policy)}; for a "
        "server with one load give --concurrency"
    )


def common_notes(policy: Policy) -> list[str]:
    """What holds for every engine."""
    notes = ["speed-ups were planned from costs of the measured machine and engine: measure again on the server"]
    if policy.model == "demo":
        notes.append("demo is draftproof's own name for its demo model: put a name or path that the server knows")
    return notes


def summary(policy: Policy, engine: Engine, chosen: Candidate) -> str:
    """Which drafter drafts how much at which load."""
    tiers = tiers_of(chosen, engine.by_load)
    parts = [
        f"{tier.gamma} tokens at {tier.concurrency} ({tier.speedup:.2f}x)"
        if tier.gamma
        else f"none at {tier.concurrency}"
        for tier in tiers
    ]
    return f"draft with {one_line(chosen.name)}: {', '.join(parts)}"


def steps(tiers: Sequence[Tier]) -> list[tuple[int, int, int]]:
    """(first, last, gamma) by batch size. A size between two planned loads gets the length of the larger one, where
    drafts are dearer; neighbours with one length are one step."""
    rows: list[tuple[int, int, int]] = []
    first = 1
    for tier in tiers:
        if rows and rows[-1][2] == tier.gamma:
            rows[-1] = (rows[-1][0], tier.concurrency, tier.gamma)
        else:
            rows.append((first, tier.concurrency, tier.gamma))
        first = tier.concurrency + 1
    return rows
