"""The rules of the house: what a machine can read off the source."""
