"""What commands show: tables, text and data for JSON, a module for each command that has more than a few lines of it."""
