"""Look-up tables, sampled losses and the operators on SelectedRows."""
