"""FusionStitching's and SOUFFLE's tables in kind: what the papers state, and what is measured here beside it."""
