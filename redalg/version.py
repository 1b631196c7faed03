"""redalg's version, which what is remembered of one release is known by."""

VERSION = "0.1.0"
