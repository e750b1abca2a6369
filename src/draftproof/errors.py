"""Every exception draftproof raises on purpose, as one tree.

    DraftproofError
    ├── InputError                what the caller gave can't be used: the CLI prints one line and exits with 2
    │   ├── InvalidParams         a sampling parameter out of range, or a combination that has no meaning
    │   ├── InvalidPrompt         empty, of a wrong type, or an id outside the vocabulary
    │   ├── PromptTooLong         no room for one new token within the context limit or the KV budget
    │   ├── ModelNotFound         no such folder, file, id or name
    │   ├── CorruptModel          found, but can't be read as what it says it is
    │   ├── UnsupportedModel      read, but can't be run exactly (recurrent state, own attention code, ...)
    │   ├── PairingError          target and drafter do not fit together
    │   └── UnknownDrafter        no drafter of that name, or an option it does not have
    └── EngineError               the engine can't keep a promise
        ├── NumericsError         the declared property of the logits does not hold on this machine
        └── RowError              a forward gave NaN for one sequence; its batch mates go on

Each message is one line that says what is wrong and how to mend it.
"""


class DraftproofError(Exception):
    """Root of the tree."""


class InputError(DraftproofError, ValueError):
    """What the caller gave can't be used."""


class InvalidParams(InputError):
    """A sampling parameter out of range."""


class InvalidPrompt(InputError):
    """A prompt that is empty, of a wrong type, or outside the vocabulary."""


class PromptTooLong(InputError):
    """No room for one new token within the context limit or the KV budget."""


class ModelNotFound(InputError):
    """No such folder, file, id or name."""


class CorruptModel(InputError):
    """Found, but can't be read as what it says it is."""


class UnsupportedModel(InputError):
    """Read, but can't be run exactly."""


class PairingError(InputError):
    """Target and drafter do not fit together; the message names the difference."""


class UnknownDrafter(InputError):
    """No drafter of that name."""


class EngineError(DraftproofError, RuntimeError):
    """The engine can't keep a promise."""


class NumericsError(EngineError):
    """The declared numerics do not hold on this machine and model."""


class RowError(EngineError):
    """A forward gave NaN for one sequence."""
