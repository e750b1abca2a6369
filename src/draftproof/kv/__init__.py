"""The key/value cache: `ledger` does the integers (which row lives where), the stores hold the arrays."""
