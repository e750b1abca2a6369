"""What a client may send, field by field. A field that is not here is refused by name; a wrong type is no right one.

Names and meanings are the OpenAI API's, with the additions that its clients send to other servers under `extra_body`
(top_k, min_p, repetition_penalty, min_tokens, ignore_eos, stop_token_ids), and draftproof's own: speculation, bucket.
A null is a field that was not sent.

Does not know: models, tokenizers, what is loaded; ranges that depend on them are checked where they are used.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from draftproof.params import RuleName

Number = Annotated[float, Field(allow_inf_nan=False)]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]
Penalty = Annotated[float, Field(ge=-2, le=2, allow_inf_nan=False)]
Stop = Annotated[str, Field(min_length=1, max_length=1024)]
BUCKET_LENGTH = 64


class Strict(BaseModel):
    """Nothing is converted, nothing unknown is let pass."""

    model_config = ConfigDict(extra="forbid", strict=True)


class SpeculationAsked(Strict):
    """How this request is to be speculated for. What was applied is in the answer."""

    enabled: bool | None = Field(
        default=None,
        description="false: plain decoding, whatever else is asked. true: with drafts; under a rollout only from the "
        "bucket's canary on. Left out: the rollout decides, or drafts are used where a drafter is loaded.",
    )
    drafter: Annotated[str, Field(max_length=128)] | None = Field(
        default=None, description='Label of a loaded drafter, or "none". The first one is the default.'
    )
    max_draft_tokens: Annotated[int, Field(ge=0, le=1024)] | None = Field(
        default=None, description="Longest draft; 0 is plain decoding."
    )
    rule: RuleName | None = Field(default=None, description="How drafts are judged; all rules keep the target's law.")
    require_lossless: bool | None = Field(
        default=None, description="Refuse what could change the target's law. Nothing that this server runs does."
    )
    trace: bool | None = Field(
        default=None, description='Each choice lists its tokens: "accepted", "correction", "bonus" or "plain".'
    )


class StreamOptions(Strict):
    """Of a streamed answer."""

    include_usage: bool | None = Field(default=None, description="A last chunk with the usage and no choices.")


class ResponseFormat(Strict):
    """Plain text; nothing else is supported."""

    type: Literal["text"]


class TextPart(Strict):
    """A piece of a message."""

    type: Literal["text"]
    text: str


class Message(Strict):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str | list[TextPart]
    name: Annotated[str, Field(max_length=256)] | None = None
    # what the official client sends along when an answer of before is a message of now: nothing, by name
    refusal: None = None
    annotations: None = None
    audio: None = None
    function_call: None = None
    tool_calls: None = None


class Asked(Strict):
    """What both routes take."""

    model: Annotated[str, Field(max_length=512)] | None = Field(
        default=None, description="As of /v1/models; it may be left out."
    )
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=128)] | None = Field(
        default=None, description="Texts for each prompt; text i has seed + i."
    )
    max_tokens: Annotated[int, Field(ge=0, le=2**31)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = Field(
        default=None, description="Default 1."
    )
    top_p: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=2**31)] | None = Field(default=None, description="0 and -1 switch it off.")
    min_p: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Field(ge=0.01, le=100, allow_inf_nan=False)] | None = None
    logit_bias: (
        dict[Annotated[str, Field(pattern="^(0|[1-9][0-9]{0,8})$")], Annotated[Number, Field(ge=-100, le=100)]] | None
    ) = None
    seed: Annotated[int, Field(ge=0, lt=2**64)] | None = Field(
        default=None, description="A fresh one by default; it is returned."
    )
    stop: Stop | Annotated[list[Stop], Field(max_length=16)] | None = None
    stop_token_ids: Annotated[list[TokenId], Field(max_length=256)] | None = None
    min_tokens: Annotated[int, Field(ge=0, le=2**31)] | None = None
    ignore_eos: bool | None = None
    user: Annotated[str, Field(max_length=512)] | None = Field(default=None, description="A rollout's sticky key.")
    speculation: SpeculationAsked | None = None
    bucket: Annotated[str, Field(min_length=1, max_length=BUCKET_LENGTH)] | None = Field(
        default=None, description='Named class of requests; also the header X-Draftproof-Bucket. "default" by default.'
    )


class ChatAsked(Asked):
    """POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=4096)]
    max_completion_tokens: Annotated[int, Field(ge=0, le=2**31)] | None = Field(
        default=None, description="The same as max_tokens; by default a text goes on up to the context limit."
    )
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    response_format: ResponseFormat | None = None


class CompletionAsked(Asked):
    """POST /v1/completions."""

    prompt: (
        str
        | Annotated[list[str], Field(min_length=1, max_length=128)]
        | Annotated[list[TokenId], Field(min_length=1)]
        | Annotated[list[Annotated[list[TokenId], Field(min_length=1)]], Field(min_length=1, max_length=128)]
    )
    echo: bool | None = Field(default=None, description="The prompt's text before the completion; not with logprobs.")
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
