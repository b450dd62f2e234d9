"""Recurrent layers and cells: LSTM, GRU and related ones."""
