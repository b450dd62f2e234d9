"""Two copies of every server: what the primary takes, the backup has before anybody is told (docs/adr/0019)."""
