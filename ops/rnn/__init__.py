"""Recurrent layers and cells: LSTM, GRU and their kin."""
