"""redalg's tests; `make test` runs those that need no GPU and little time."""
