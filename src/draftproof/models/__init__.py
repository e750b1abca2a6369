"""draftproof."""
