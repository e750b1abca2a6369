"""Draft heads and draft models from a target's own texts: prompts, texts, loss, steps, and the gate at the end."""
