"""Sequences: operators on rows that a LoD groups, and on the LoD itself."""
