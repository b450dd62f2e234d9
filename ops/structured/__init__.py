"""Losses and decoders over label sequences: CRF and CTC."""
