"""Host code that decides who runs (`scheduler`), how far to guess (`policy`) and where a text ends (`stop`)."""
